/* BSD's kqueue and kevent (libheddle_kqueue), for programs that include <sys/event.h>. Compile with the
 * output of `pkg-config --cflags heddle-kqueue`. heddle/event.h documents all calls, under names that begin
 * with heddle_. */
#ifndef HEDDLE_SYS_EVENT_H
#define HEDDLE_SYS_EVENT_H

#include <heddle/event.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

int kqueue(void);
int kqueue1(int flags);
int kevent(int kq, const struct kevent *changelist, int nchanges, struct kevent *eventlist, int nevents,
	   const struct timespec *timeout);

int kqueue_close(int kq);
int kqueue_leave(int kq);
int kqueue_policy(int kq, const char *policy);
int kqueue_multi(int kq, uint32_t word);
int kqueue_tune(int kq, uint32_t word);
int kqueue_share(int kq, uint32_t percent);
int kqueue_frequency(int kq, uint32_t hertz);
int kqueue_idle(int kq, uintptr_t ident, int16_t filter, uint32_t milliseconds);
int kqueue_stats(int kq, char *text, size_t size);

/* Returns the error text of the calling thread's last call that failed, if there is more to say than errno. */
const char *kqueue_error(void);

#ifdef __cplusplus
}
#endif

#endif
