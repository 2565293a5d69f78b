/* dovelane-milter - the way in: diverts accepted mail into lanes on enough nodes before Postfix answers 250.
 *
 * It must be the last milter of its smtpd, on a UNIX socket; docs/admin-guide.md has the lines for main.cf. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "callbacks.h"
#include "log.h"
#include "program.h"
#include "session.h"

struct milter milter;

/* libmilter waits for these in a thread of its own: every other thread must have them blocked from its start, or the signal ends the process
 * there. */
static void leave_signals_to_libmilter(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
    struct program p;
    char *error = NULL;
    leave_signals_to_libmilter();
    program_start(&p, "dovelane-milter", false, argc, argv);
    milter.config = p.config;
    milter.store = store_open(p.config, p.node, &error);
    if (!milter.store)
        log_fatal("%s", error);
    if (!callbacks_open(p.config->milter_socket, p.config->milter_socket_group))
        return 1;
    if (p.config->divert.n && !*p.config->bounce_port)
        log_warning("bounce_port is empty: what a next hop refuses for good stays in its lane, and nobody is told");
    log_info("started: version %s, %zu next hops are diverted, copies = %lld of %zu nodes, on_store_failure = %s", DOVELANE_VERSION, p.config->divert.n,
             (long long)p.config->copies, p.config->nnodes, p.config->on_store_failure == ON_STORE_FAILURE_QUEUE ? "queue" : "tempfail");
    bool good = callbacks_run();
    unlink(p.config->milter_socket);
    /* What is being stored gets its answer, or Postfix would keep a mail whose copies stay in the lanes. */
    for (int i = 0; i < 500 && atomic_load(&milter.deciding); i++)
        usleep(20000);
    usleep(20000); /* the answers leave after their callbacks have returned */
    int cut = atomic_load(&milter.deciding);
    if (cut)
        log_warning("ended in the middle of %d mails: they may be sent more than once", cut);
    log_info("ended");
    /* libmilter's workers may still be in a callback: the process ends as a whole. */
    _exit(good ? 0 : 1);
}
