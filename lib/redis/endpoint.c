#include "lib/redis/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "lib/base/mem.h"
#include "lib/base/program_name.h"

static const char *replica;

struct endpoint {
    size_t n;
    char *address[2], *host[2]; /* host: to be verified without tls_name */
    struct tls_peer *peer[2];
    bool tls;
    char *tls_name, *ca_file, *cert_file, *key_file, *user_file;
    char *at; /* NULL: the file's user comes as he is */
    struct far_time path_timeout;
};

void endpoint_replica(const char *name)
{
    replica = name;
}

/* ---- users ---- */

static char *filled(const char *template, char sign, const char *name)
{
    struct buf b = {0};
    for (const char *p = template; *p; p++)
        if (p[0] == '%' && p[1] == sign) {
            buf_adds(&b, name);
            p++;
        } else {
            buf_add(&b, p, 1);
        }
    char *file = mem_strdup(b.len ? b.data : "");
    buf_free(&b);
    return file;
}

char *endpoint_file_of(const char *template, const char *name)
{
    return filled(template, 'p', name);
}

char *endpoint_file_of_replica(const char *template, const char *name)
{
    return filled(template, 'r', name);
}

static int refused(char **error_r, char *error)
{
    *error_r = error;
    return -1;
}

static int read_user(const char *setting, const char *file, struct endpoint_user *out,
                     char **error_r)
{
    char line[sizeof out->name + sizeof out->password + 2] = "";
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return refused(error_r, mem_printf("%s %s: %s", setting, file, strerror(e)));
    }
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (st.st_mode & S_IRWXO)
        return refused(
            error_r,
            mem_printf("%s %s can be read or written by everybody (mode %04o): chmod 0640 it",
                       setting, file, (unsigned)st.st_mode & 07777));
    if (n < 0)
        return refused(error_r, mem_printf("%s %s: not a file with one line", setting, file));
    line[strcspn(line, "\r\n")] = '\0';
    size_t name = strcspn(line, " \t"), gap = strspn(line + name, " \t"),
           password = strlen(line + name + gap);
    bool good =
        name && gap && password && name < sizeof out->name && password < sizeof out->password;
    if (good) {
        memcpy(out->name, line, name);
        out->name[name] = '\0';
        memcpy(out->password, line + name + gap, password + 1);
    }
    explicit_bzero(line, sizeof line);
    if (good)
        return 1;
    return refused(
        error_r, mem_printf("%s %s: its one line must be a user's name, a blank, and the password",
                            setting, file));
}

int endpoint_read_user(const char *file, struct endpoint_user *out, char **error_r)
{
    return read_user("node_user_file", file, out, error_r);
}

int endpoint_read_replica(const char *file, struct endpoint_user *out, char **error_r)
{
    return read_user("replica_user_file", file, out, error_r);
}

int endpoint_read_metrics_user(const char *file, struct endpoint_user *out, char **error_r)
{
    return read_user("metrics_user_file", file, out, error_r);
}

bool endpoint_user_at(struct endpoint_user *u, const char *node)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    size_t len = strlen(u->name);
    if (len + 1 + strlen(node) >= sizeof u->name)
        return false;
    snprintf(u->name + len, sizeof u->name - len, "@%s", node);
    if (!HMAC(EVP_sha256(), u->password, (int)strlen(u->password), (const unsigned char *)u->name,
              strlen(u->name), mac, &n))
        abort();
    explicit_bzero(u->password, sizeof u->password);
    for (unsigned i = 0; i < n; i++)
        snprintf(u->password + 2 * i, 3, "%02x", mac[i]);
    explicit_bzero(mac, sizeof mac);
    return true;
}

int endpoint_user(const struct endpoint *e, struct endpoint_user *out, char **error_r)
{
    if (!*e->user_file)
        return 0;
    if (!e->at)
        return endpoint_read_user(e->user_file, out, error_r);
    int found = endpoint_read_replica(e->user_file, out, error_r);
    if (found > 0 && !endpoint_user_at(out, e->at))
        return refused(
            error_r, mem_printf("replica_user_file %s: its user's name is too long", e->user_file));
    return found;
}

const char *endpoint_user_file(const struct endpoint *e)
{
    return e->user_file;
}

/* ---- addresses ---- */

static char *copy(const char *text)
{
    return mem_strdup(text ? text : "");
}

static void add_address(struct endpoint *e, const char *address)
{
    char buf[512];
    const char *host, *port;
    if (!address || !*address)
        return;
    e->address[e->n] = mem_strdup(address);
    if (config_address(address, buf, sizeof buf, &host, &port) == 0 && port)
        e->host[e->n] = mem_strdup(host);
    e->n++;
}

struct endpoint *endpoint_new(const struct config_link *l)
{
    struct endpoint *e = mem_zero(sizeof *e);
    add_address(e, l->address);
    add_address(e, l->standby);
    e->tls = l->tls;
    e->tls_name = copy(l->tls_name);
    e->ca_file = copy(l->ca_file);
    e->cert_file = copy(l->cert_file);
    e->key_file = copy(l->key_file);
    e->at = l->at && replica ? mem_strdup(l->at) : NULL;
    e->user_file =
        l->at ? endpoint_file_of_replica(replica ? l->user_file : "", replica ? replica : "")
              : endpoint_file_of(l->user_file ? l->user_file : "", program_name());
    e->path_timeout =
        l->path_timeout.least > 0. ? l->path_timeout : (struct far_time){.4, .4, 0., 0.};
    return e;
}

void endpoint_free(struct endpoint *e)
{
    for (size_t i = 0; i < e->n; i++) {
        tls_peer_release(e->peer[i]);
        free(e->address[i]);
        free(e->host[i]);
    }
    free(e->tls_name);
    free(e->ca_file);
    free(e->cert_file);
    free(e->key_file);
    free(e->user_file);
    free(e->at);
    free(e);
}

size_t endpoint_addresses(const struct endpoint *e)
{
    return e->n;
}

const char *endpoint_address(const struct endpoint *e, size_t i)
{
    return e->address[i];
}

double endpoint_path_timeout(const struct endpoint *e, const struct nearness *n)
{
    return nearness_time(n, &e->path_timeout);
}

/* ---- TLS ---- */

/* As for the password's file: who has the key is us. */
static char *open_to_all(const struct endpoint *e)
{
    const char *file = *e->key_file ? e->key_file : e->cert_file;
    struct stat st;
    if (!*file || stat(file, &st) || !(st.st_mode & S_IRWXO))
        return NULL;
    return mem_printf(
        "%s %s holds the key and can be read or written by everybody (mode %04o): chmod 0640 it",
        *e->key_file ? "node_key_file" : "node_cert_file", file, (unsigned)st.st_mode & 07777);
}

struct tls_peer *endpoint_tls(struct endpoint *e, size_t i, char **error_r)
{
    *error_r = NULL;
    if (!e->tls || !e->host[i])
        return NULL;
    if (!e->peer[i] && !(*error_r = open_to_all(e))) {
        struct tls_options o = {*e->tls_name ? e->tls_name : e->host[i], true, e->ca_file,
                                e->cert_file, e->key_file};
        e->peer[i] = tls_peer_new(&o, error_r);
    }
    return e->peer[i];
}

void endpoint_forget_tls(struct endpoint *e, size_t i)
{
    tls_peer_release(e->peer[i]);
    e->peer[i] = NULL;
}

/* ---- -t ---- */

static char *check(const struct config_link *l, const char *kind, const char *name)
{
    struct endpoint *e = endpoint_new(l);
    struct endpoint_user user;
    char *error = NULL;
    for (size_t i = 0; i < e->n && !error; i++)
        endpoint_tls(e, i, &error);
    if (!error)
        endpoint_user(e, &user, &error);
    explicit_bzero(&user, sizeof user);
    endpoint_free(e);
    if (!error)
        return NULL;
    char *told = mem_printf("%s %s: %s", kind, name, error);
    free(error);
    return told;
}

char *endpoint_check(const struct config *c)
{
    char *error = NULL;
    for (size_t i = 0; i < c->nnodes && !error; i++) {
        struct config_link l = config_node_link(c, i);
        error = check(&l, "node", c->node[i].name);
    }
    return error;
}

char *endpoint_check_replicas(const struct config *c)
{
    char *error = NULL;
    for (size_t i = 0; i < c->nreplicas && !error; i++) {
        struct config_link l = config_replica_link(c, i);
        error = check(&l, "replica", c->replica[i].name);
    }
    return error;
}
