/* peer_credentials - who may connect to milter_socket. Without a group everybody may, by the
 * socket's mode. Then the kernel's word counts: who is not Postfix is not served. */
#include <pwd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/postfix/postconf.h"
#include "milter/peer_credentials.h"

static struct {
    bool asked; /* who connects */
    uid_t postfix;
} peers;

bool peer_may_connect(int fd)
{
    static double complained;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    if (!peers.asked || (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
                         (peer.uid == peers.postfix || peer.uid == 0 || peer.uid == geteuid())))
        return true;
    if (clock_monotonic() - complained >= 1) {
        complained = clock_monotonic();
        log_warning("milter_socket: process %d of user %d wants to be served, but is not Postfix's "
                    "(mail_owner); milter_socket_group names a group that may",
                    (int)peer.pid, (int)peer.uid);
    }
    return false;
}

void peer_find_postfix(const struct config *c)
{
    char *error = NULL;
    struct postconf *conf = *c->postfix_config ? postconf_read(c->postfix_config, &error) : NULL;
    const char *owner = conf ? postconf_get(conf, NULL, "mail_owner") : "";
    const struct passwd *user = getpwnam(*owner ? owner : "postfix");
    peers.asked = user != NULL;
    if (user)
        peers.postfix = user->pw_uid;
    else
        log_warning("milter_socket_group is empty, and Postfix's user is not known here: all who "
                    "reach %s are served",
                    c->milter_socket);
    free(error);
    postconf_free(conf);
}
