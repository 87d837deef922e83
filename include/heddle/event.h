/* One event queue for all threads of a program, with the interface of BSD's kqueue (libheddle): threads call
 * heddle_kevent() on the same queue, and its policy chooses which of them gets which event (SKQ).
 * docs/events/c.md is the guide, with a table for code written for kqueue or SKQ; examples/events-echo-c is a
 * server.
 *
 *     int kq = heddle_kqueue();
 *     struct kevent change, events[16];
 *     EV_SET(&change, fd, EVFILT_READ, EV_ADD, 0, 0, connection);
 *     heddle_kevent(kq, &change, 1, NULL, 0, NULL);
 *     for (;;) {                                                  // in each thread
 *         int n = heddle_kevent(kq, NULL, 0, events, 16, NULL);   // releases the events of the last call
 *         for (int i = 0; i < n; i++)
 *             serve(events[i].udata);                             // no other thread gets it until this one calls again
 *     }
 *
 * The structure, names and numbers are FreeBSD's (kqueue(2), kevent(2)), without ext[]. Link with -lheddle.
 * On failure all calls return -1 and set errno; hd_error() of heddle/client.h returns a text if there is more
 * to say. Any thread may make any call. */
#ifndef HEDDLE_EVENT_H
#define HEDDLE_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kevent {
	uintptr_t ident;       /* a descriptor, signal or process, or any number for timers and user events */
	short filter;          /* EVFILT_* */
	unsigned short flags;  /* EV_* */
	unsigned int fflags;   /* NOTE_* */
	int64_t data;
	void *udata;           /* reported as it was given */
};

#define EV_SET(kevp, a, b, c, d, e, f) do { \
	struct kevent *hd_kev = (kevp); \
	hd_kev->ident = (uintptr_t)(a); \
	hd_kev->filter = (short)(b); \
	hd_kev->flags = (unsigned short)(c); \
	hd_kev->fflags = (unsigned int)(d); \
	hd_kev->data = (int64_t)(e); \
	hd_kev->udata = (void *)(f); \
} while (0)

/* What to watch, and what data is in a report: */
#define EVFILT_READ (-1)   /* bytes to read, 1 if connections wait; also EV_EOF if the peer has closed */
#define EVFILT_WRITE (-2)  /* room in bytes; EV_EOF if the reader is gone */
#define EVFILT_VNODE (-4)  /* an open file; fflags: what happened to it */
#define EVFILT_PROC (-5)   /* a process; its status as in wait(2) if it is a child */
#define EVFILT_SIGNAL (-6) /* how often it came. It is blocked in the registering thread, and must be blocked in all */
#define EVFILT_TIMER (-7)  /* how often it expired; in a registration: the period */
#define EVFILT_USER (-11)  /* as set by the program */

/* Actions */
#define EV_ADD 0x0001     /* register, or replace udata, fflags and data (not flags) of a registration; enables it */
#define EV_DELETE 0x0002
#define EV_ENABLE 0x0004
#define EV_DISABLE 0x0008 /* registered, but not reported */
/* How often to report: while the condition holds, unless one of these flags is set */
#define EV_ONESHOT 0x0010  /* once; this ends the registration */
#define EV_CLEAR 0x0020    /* when the condition begins (edge-triggered) */
#define EV_RECEIPT 0x0040  /* report this change with EV_ERROR, data is 0 on success */
#define EV_DISPATCH 0x0080 /* once, then not until EV_ENABLE */
/* SKQ's */
#define EV_AFFINITY 0x0200 /* only for the registering thread, which becomes one that serves the queue */
#define EV_REALTIME 0x0400 /* reported before others; the number is this library's */
/* Flags of reports */
#define EV_SYSFLAGS 0xf000
#define EV_ERROR 0x4000 /* data is an errno */
#define EV_EOF 0x8000

#define NOTE_FFNOP 0x00000000 /* EVFILT_USER: leave fflags as they are, */
#define NOTE_FFAND 0x40000000 /* AND them, */
#define NOTE_FFOR 0x80000000  /* OR them, */
#define NOTE_FFCOPY 0xc0000000 /* replace them with the lower 24 bits */
#define NOTE_FFCTRLMASK 0xc0000000
#define NOTE_FFLAGSMASK 0x00ffffff
#define NOTE_TRIGGER 0x01000000 /* trigger the event */

#define NOTE_LOWAT 0x0001 /* EVFILT_READ: report when data bytes can be read, or at the end */
#define NOTE_FILE_POLL 0x0002 /* EVFILT_READ: report a file at its end, too */
#define NOTE_IDLE 0x00100000  /* EVFILT_READ, EVFILT_WRITE: nothing came within the time of heddle_kqueue_idle() */

#define NOTE_EXIT 0x80000000 /* EVFILT_PROC; without flags nothing is reported */
#define NOTE_FORK 0x40000000 /* these fail with ENOTSUP: Linux reports them to privileged programs only */
#define NOTE_EXEC 0x20000000
#define NOTE_TRACK 0x00000001
#define NOTE_TRACKERR 0x00000002
#define NOTE_CHILD 0x00000004

#define NOTE_DELETE 0x0001 /* EVFILT_VNODE */
#define NOTE_WRITE 0x0002
#define NOTE_EXTEND 0x0004
#define NOTE_ATTRIB 0x0008
#define NOTE_LINK 0x0010
#define NOTE_RENAME 0x0020
#define NOTE_REVOKE 0x0040 /* its file system was unmounted */

#define NOTE_SECONDS 0x00000001 /* EVFILT_TIMER: the unit of data; milliseconds by default */
#define NOTE_MSECONDS 0x00000002
#define NOTE_USECONDS 0x00000004
#define NOTE_NSECONDS 0x00000008
#define NOTE_ABSTIME 0x00000010 /* data is a time since 1970; reported from then on, once with EV_CLEAR or EV_ONESHOT */

/* Makes a queue. Returns a descriptor for these calls and close() only; exec closes it. A child of fork() has
 * none of its parent's queues (EBADF). The policy is hybrid, or what HEDDLE_KQUEUE_POLICY in the environment
 * says. */
int heddle_kqueue(void);

/* As heddle_kqueue(). flags: 0 or O_CLOEXEC, which is always set. */
int heddle_kqueue1(int flags);

/* Makes the changes. Then, if nothing had to be reported about them and nevents is not 0, waits for events
 * for at most `timeout` (NULL: no limit). Returns how many entries of `eventlist` were written: 0 if the time
 * is over; -1 with EINTR if a signal came. A change that fails is reported with EV_ERROR; if there is no room
 * for that, the call fails with its errno:
 *   EBADF no such queue, or it was closed; the descriptor is not open
 *   ENOENT not registered
 *   EINVAL unknown filter, flag or note; a queue; EVFILT_VNODE on a descriptor without an inode
 *   ENOTSUP a note that Linux cannot serve
 *   ESRCH no such process; the thread of EV_AFFINITY has left
 *   ENOMEM no room for another registration
 *   EFAULT a list or time is NULL
 *
 * A thread that waits serves the queue from then on, until it ends or leaves or the queue is closed. No other
 * thread gets its events before it calls again. */
int heddle_kevent(int kq, const struct kevent *changelist, int nchanges, struct kevent *eventlist, int nevents,
		  const struct timespec *timeout);

/* Ends a queue, as close(kq) does. Waiting threads fail with EBADF at once, also after close(kq); then the
 * memory is freed when the next queue is made at the latest. */
int heddle_kqueue_close(int kq);

/* Ends the calling thread's service of the queue. Its events are reported to others if their conditions still
 * hold. ENOENT if it did not serve the queue. */
int heddle_kqueue_leave(int kq);

/* Sets the policy: its name, or name:key=value,... with parameters; see docs/policies. EINVAL if it is
 * unknown; then nothing changes. */
int heddle_kqueue_policy(int kq, const char *policy);

/* The same with the word of SKQ's ioctl FKQMULTI; may be called at any time. */
int heddle_kqueue_multi(int kq, uint32_t word);
#define KQ_SCHED_QUEUE 0x01 /* bits 0-7: the affinity; 0: random */
#define KQ_SCHED_CPU 0x02
#define KQ_SCHED_BEST 0x04
#define KQ_SCHED_ARGS(n) ((uint32_t)(n) << 8) /* how many other threads are compared; for BEST, how many in all */
#define KQ_SCHED_FEAT_WS (1u << 16)           /* work stealing */
#define KQ_SCHED_FARGS(n) ((uint32_t)(n) << 24) /* how many events are stolen at once */

/* SKQ's ioctl FKQTUNE: the parameter, or-ed with value << 16. */
int heddle_kqueue_tune(int kq, uint32_t word);
#define KQTUNE_FREQ 1
#define KQTUNE_RTSHARE 2

/* Sets how much of a batch may be EV_REALTIME: 1 to 100 per cent; initially 100. */
int heddle_kqueue_share(int kq, uint32_t percent);

/* Sets how often a second a thread should look for EV_REALTIME events: it gets fewer events at once if they
 * take long. 0, the initial value: no rule. */
int heddle_kqueue_frequency(int kq, uint32_t hertz);

/* Sets after how many milliseconds without a report the registration (ident, filter), EVFILT_READ or EVFILT_WRITE,
 * is reported all the same: with NOTE_IDLE in fflags and 0 in data, and again after each further such time. 0, the
 * initial value: never. ENOENT if it is not registered, or on a file. */
int heddle_kqueue_idle(int kq, uintptr_t ident, int16_t filter, uint32_t milliseconds);

/* Writes the queue's statistics as text, a line per thread, for people. Writes as much as fits with a
 * terminating zero, and returns the length of the whole text (SKQ's FKQMPRNT). */
int heddle_kqueue_stats(int kq, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
