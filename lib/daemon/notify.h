/* notify - what a program tells the service manager that started it (sd_notify(3)): its state, and
 * that it is alive.
 *
 * Does nothing when NOTIFY_SOCKET is not set. Thread safe. */
#ifndef DOVELANE_LIB_DAEMON_NOTIFY_H
#define DOVELANE_LIB_DAEMON_NOTIFY_H

/* "READY=1\nSTATUS=...", as sd_notify(3) has it. */
void notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Milliseconds between two signs of life (half of what the manager allows), 0: none are wanted.
 * Also when a process before this one was given the watchdog: it hands over its environment. */
int notify_watchdog(void);

#endif
