/* main - the service: one client connection, which is main's. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/worker.h"

#include <restrict-access.h>

#include <sys/socket.h>
#include <sys/stat.h>

static struct mail_storage_service_ctx *storage_service;

/* One that has opened somebody has no listener any more (user.c), and ends by this. */
static void connection_ended(void)
{
    master_service_client_connection_destroyed(master_service);
}

/* Whoever is let in has every user's mailboxes. The master has made the socket for the user that
 * main runs as; its mode may be a wider one. */
static bool is_main(int fd)
{
    const char *path = t_strconcat(compat_base_dir(master_service), "/dovelane-worker", NULL);
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    struct stat st;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
        (peer.uid == 0 || (stat(path, &st) == 0 && peer.uid == st.st_uid)))
        return TRUE;
    i_error("uid %d, process %d, connected and was sent away: %s is for root and its owner (the "
            "user of service dovelane-replicator)",
            (int)peer.uid, (int)peer.pid, path);
    return FALSE;
}

static void client_connected(struct master_service_connection *conn)
{
    master_service_client_connection_accept(conn);
    if (!is_main(conn->fd)) {
        i_close_fd(&conn->fd);
        connection_ended();
        return;
    }
    serve_begin(conn->fd, storage_service, connection_ended);
}

int main(int argc, char *argv[])
{
    const enum mail_storage_service_flags flags = MAIL_STORAGE_SERVICE_FLAG_USERDB_LOOKUP |
                                                  MAIL_STORAGE_SERVICE_FLAG_TEMP_PRIV_DROP |
                                                  MAIL_STORAGE_SERVICE_FLAG_NO_IDLE_TIMEOUT;
    const char *error;

    master_service = master_service_init("dovelane-worker", COMPAT_SERVICE_FLAG_KEEP_CONFIG_OPEN,
                                         &argc, &argv, "");
    if (master_getopt(master_service) > 0)
        return FATAL_DEFAULT;
    if (compat_settings_read_simple(master_service, "dovelane", &error) < 0)
        i_fatal("%s", error);
    /* Root until the first user is opened (credentials.c). */
    restrict_access_by_env(RESTRICT_ACCESS_FLAG_ALLOW_ROOT, NULL);
    master_service_init_log_with_pid(master_service);
    storage_service = compat_storage_service_init(master_service, flags);
    open_init();
    stubs_init();
    sieve_load();
    restrict_access_allow_coredumps(TRUE);
    master_service_init_finish(master_service);

    master_service_run(master_service, client_connected);

    serve_end();
    stubs_deinit();
    open_deinit();
    mail_storage_service_deinit(&storage_service);
    master_service_deinit(&master_service);
    return 0;
}
