/* The settings for one next hop in the engine's terms. */
#include <stdlib.h>
#include <string.h>

#include "lib/config/config.h"
#include "relay/smtp/delivery_id.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/postfix/agents.h"
#include "lib/config/nexthop.h"
#include "relay/smtp/smtp.h"

static struct smtp_policy *plain(const struct config *c)
{
    struct smtp_policy *p = mem_zero(sizeof *p);
    const int64_t ms[SMTP_LIMITS] = {
        [SMTP_LIMIT_CONNECT] = c->smtp_connect_timeout,
        [SMTP_LIMIT_HELO] = c->smtp_helo_timeout,
        [SMTP_LIMIT_STARTTLS] = c->smtp_starttls_timeout,
        [SMTP_LIMIT_XFORWARD] = c->smtp_xforward_timeout,
        [SMTP_LIMIT_MAIL] = c->smtp_mail_timeout,
        [SMTP_LIMIT_RCPT] = c->smtp_rcpt_timeout,
        [SMTP_LIMIT_DATA_INIT] = c->smtp_data_init_timeout,
        [SMTP_LIMIT_DATA_XFER] = c->smtp_data_xfer_timeout,
        [SMTP_LIMIT_DATA_DONE] = c->smtp_data_done_timeout,
        [SMTP_LIMIT_RSET] = c->smtp_rset_timeout,
        [SMTP_LIMIT_IDLE] = c->connection_idle,
    };
    for (size_t i = 0; i < SMTP_LIMITS; i++)
        p->limit[i] = (double)ms[i] / 1000.;
    p->users = 1;
    return p;
}

static void set_tls(struct smtp_policy *p, const struct config_destination *d,
                    const struct nexthop *hop, const struct agent *agent)
{
    const char *name = *d->tls_name ? d->tls_name : hop->port ? hop->host : NULL;
    struct tls_options o = {name, d->tls == TLS_VERIFY, d->tls_ca_file, d->tls_cert_file,
                            d->tls_key_file};
    p->tls = d->tls == TLS_POSTFIX ? agent->tls : d->tls;
    if (p->tls == TLS_NONE)
        return;
    /* A section "*" with verify, and a socket: nothing to compare with, so nothing may pass. */
    if (o.verify && !name)
        p->unusable = mem_strdup("tls = verify needs tls_name for a UNIX socket");
    else
        p->peer = tls_peer_new(&o, &p->unusable);
}

/* Mail does not wait for a key: without it, one that is delivered twice shows twice. */
static void set_key(struct smtp_policy *p, const struct config *c,
                    const struct config_destination *d)
{
    char *error = NULL;
    if (!d->delivery_id)
        return;
    p->key = delivery_key_read(c->group_key_file, &error);
    if (!p->key)
        log_error("group_key_file: %s; mail goes out without " ENTRYID_HEADER
                  ", and what is delivered twice shows twice",
                  error);
    free(error);
}

/* Without the key the site would not know the mail that it is asked for. */
static void set_site(struct smtp_policy *p, const struct config *c,
                     const struct config_destination *d, const struct nexthop *hop)
{
    int replica =
        d->until == UNTIL_REPLICATED && p->key && hop->lmtp ? config_replica_at(c, hop) : -1;
    p->site = replica < 0 ? 0 : (uint32_t)c->replica[replica].id;
}

static unsigned discarded(const struct config_destination *d)
{
    unsigned set = 0;
    for (size_t i = 0; i < d->discard_ehlo_keywords.n; i++)
        set |= smtp_features_named(d->discard_ehlo_keywords.v[i]);
    return set;
}

struct smtp_policy *smtp_policy_new(const struct config *c, const char *destination,
                                    const struct nexthop *hop, const struct agent *agent)
{
    const struct config_destination *d = config_destination(c, destination);
    struct smtp_policy *p = plain(c);
    p->trust = d->trust == TRUST_POSTFIX ? agent->trust : d->trust;
    set_key(p, c, d);
    set_site(p, c, d, hop);
    p->convert = d->without_8bitmime == WITHOUT_8BITMIME_CONVERT;
    p->discard = discarded(d);
    set_tls(p, d, hop, agent);
    if (p->unusable)
        log_error("destination %s: %s", destination, p->unusable);
    return p;
}

static char *check(const struct config *c, const struct config_destination *d)
{
    char *error = NULL;
    if (d->tls != TLS_NONE)
        tls_peer_release(
            tls_peer_new(&(struct tls_options){NULL, d->tls == TLS_VERIFY, d->tls_ca_file,
                                               d->tls_cert_file, d->tls_key_file},
                         &error));
    if (!error && d->delivery_id) {
        struct delivery_key *key = delivery_key_read(c->group_key_file, &error);
        delivery_key_free(key);
    }
    if (!error)
        return NULL;
    char *told = mem_printf("destination \"%s\": %s", d->name, error);
    free(error);
    return told;
}

char *smtp_policy_check(const struct config *c)
{
    char *error = check(c, &c->other);
    for (size_t i = 0; i < c->ndestinations && !error; i++)
        error = check(c, &c->destination[i]);
    return error;
}

struct smtp_policy *smtp_policy_own(const struct config *c)
{
    struct smtp_policy *p = plain(c);
    p->trust = TRUST_XFORWARD;
    return p;
}

void smtp_policy_release(struct smtp_policy *p)
{
    if (!p || --p->users)
        return;
    tls_peer_release(p->peer);
    delivery_key_free(p->key);
    free(p->unusable);
    free(p);
}
