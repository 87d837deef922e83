/* One event queue for all threads of a program, in the shape of BSD's kqueue (libheddle): threads call heddle_kevent() on the same
 * queue, and its policy chooses which of them is told what (SKQ). docs/events/c.md has the whole, with a table for code written for kqueue
 * or SKQ; examples/events-echo-c is a server.
 *
 *     int kq = heddle_kqueue();
 *     struct kevent change, events[16];
 *     EV_SET(&change, fd, EVFILT_READ, EV_ADD, 0, 0, connection);
 *     heddle_kevent(kq, &change, 1, NULL, 0, NULL);
 *     for (;;) {                                                  // in each thread
 *         int n = heddle_kevent(kq, NULL, 0, events, 16, NULL);   // ends what the last call gave
 *         for (int i = 0; i < n; i++)
 *             serve(events[i].udata);                             // nobody else is told of it until this thread calls again
 *     }
 *
 * Structure, names and numbers are FreeBSD's (kqueue(2), kevent(2)), without ext[]. Link with -lheddle. All calls return -1 and set errno
 * where they fail; hd_error() of heddle/client.h has the text, if there is more to say. All may be made by any thread. */
#ifndef HEDDLE_EVENT_H
#define HEDDLE_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kevent {
	uintptr_t ident;       /* what: a descriptor, a signal, a process, any number for timers and user events */
	short filter;          /* EVFILT_* */
	unsigned short flags;  /* EV_* */
	unsigned int fflags;   /* NOTE_* */
	int64_t data;
	void *udata;           /* told as it was given */
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

/* What is looked at. data of what is told: */
#define EVFILT_READ (-1)   /* bytes to read, 1 for connections that wait; EV_EOF beside them when the peer has ended */
#define EVFILT_WRITE (-2)  /* room, in bytes; EV_EOF when nobody reads */
#define EVFILT_VNODE (-4)  /* an open file; fflags: what happened to it */
#define EVFILT_PROC (-5)   /* a process; its status as of wait(2) if it is a child */
#define EVFILT_SIGNAL (-6) /* how often it came. It is blocked in the thread that registers it, and has to be in all */
#define EVFILT_TIMER (-7)  /* how often it expired; when registered: the period */
#define EVFILT_USER (-11)  /* as the program sets it */

/* What to do */
#define EV_ADD 0x0001     /* register; or replace udata, fflags and data of what is: its flags stay. Enables */
#define EV_DELETE 0x0002
#define EV_ENABLE 0x0004
#define EV_DISABLE 0x0008 /* registered, not told */
/* How it is told: again as long as it is so, unless one of these says otherwise */
#define EV_ONESHOT 0x0010  /* once; the registration ends with it */
#define EV_CLEAR 0x0020    /* when it becomes so (edge-triggered) */
#define EV_RECEIPT 0x0040  /* of this change EV_ERROR is told, with data 0 if all is well */
#define EV_DISPATCH 0x0080 /* once, then not until EV_ENABLE */
/* SKQ's */
#define EV_AFFINITY 0x0200 /* told to the thread that registers it only, which becomes one that events are told to */
#define EV_REALTIME 0x0400 /* told before others; the number is this library's */
/* What is told */
#define EV_SYSFLAGS 0xf000
#define EV_ERROR 0x4000 /* data is an errno */
#define EV_EOF 0x8000

#define NOTE_FFNOP 0x00000000 /* EVFILT_USER: fflags stay, */
#define NOTE_FFAND 0x40000000 /* are anded, */
#define NOTE_FFOR 0x80000000  /* ored, */
#define NOTE_FFCOPY 0xc0000000 /* replaced by the lower 24 bits */
#define NOTE_FFCTRLMASK 0xc0000000
#define NOTE_FFLAGSMASK 0x00ffffff
#define NOTE_TRIGGER 0x01000000 /* it happens */

#define NOTE_LOWAT 0x0001 /* EVFILT_READ: told when data bytes can be read, not before; the end is told all the same */
#define NOTE_FILE_POLL 0x0002 /* EVFILT_READ: a file is told at its end too */

#define NOTE_EXIT 0x80000000 /* EVFILT_PROC; without flags it tells nothing */
#define NOTE_FORK 0x40000000 /* these are ENOTSUP: Linux reports them to privileged programs alone */
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

#define NOTE_SECONDS 0x00000001 /* EVFILT_TIMER: the unit of data, milliseconds if none is given */
#define NOTE_MSECONDS 0x00000002
#define NOTE_USECONDS 0x00000004
#define NOTE_NSECONDS 0x00000008
#define NOTE_ABSTIME 0x00000010 /* data is a time since 1970: told from then on, once with EV_CLEAR or EV_ONESHOT */

/* A queue: the number of a descriptor that is for these calls and for close(), closed by exec. A child of fork() has none of its parent's
 * queues (EBADF). Policy: hybrid, or what HEDDLE_KQUEUE_POLICY in the environment says. */
int heddle_kqueue(void);

/* As heddle_kqueue(); flags: 0 or O_CLOEXEC, which is so anyway. */
int heddle_kqueue1(int flags);

/* Makes the changes; then, if nothing of that had to be told and nevents is not 0, waits for events, at most `timeout` (NULL: for ever).
 * How many entries of `events` were written: 0 when the time is over, -1 and EINTR when a signal came. Changes that fail are told with
 * EV_ERROR; where there is no room for that the call ends with their errno:
 *   EBADF no such queue, or it was closed; the descriptor is not open    ENOENT not registered      EINVAL unknown filter, flag or note,
 *   a queue, EVFILT_VNODE on what has no inode    ENOTSUP a note that Linux cannot serve    ESRCH no such process; the thread of EV_AFFINITY is gone    ENOMEM no room     EFAULT a list or time is NULL.
 *
 * A thread that waits serves the queue from then on, until it ends, leaves, or the queue is closed; what it was told nobody else is told
 * before it calls again. */
int heddle_kevent(int kq, const struct kevent *changelist, int nchanges, struct kevent *eventlist, int nevents,
		  const struct timespec *timeout);

/* Ends a queue, as close(kq) does: threads that wait on it get EBADF at once. After close(kq) they do, too, and the memory is freed at the
 * latest when the next queue is made. */
int heddle_kqueue_close(int kq);

/* The calling thread serves the queue no more; what it was told is told to others again if it is still so. ENOENT if it did not. */
int heddle_kqueue_leave(int kq);

/* Changes the policy: its name, and name:key=value,... with parameters; docs/policies. EINVAL, and nothing changed, if it is unknown. */
int heddle_kqueue_policy(int kq, const char *policy);

/* The same with the word of SKQ's ioctl FKQMULTI, at any time. */
int heddle_kqueue_multi(int kq, uint32_t word);
#define KQ_SCHED_QUEUE 0x01 /* bits 0-7: the affinity; none of them: at random */
#define KQ_SCHED_CPU 0x02
#define KQ_SCHED_BEST 0x04
#define KQ_SCHED_ARGS(n) ((uint32_t)(n) << 8) /* how many others are compared; for BEST how many in all */
#define KQ_SCHED_FEAT_WS (1u << 16)           /* work stealing */
#define KQ_SCHED_FARGS(n) ((uint32_t)(n) << 24) /* how many at once */

/* SKQ's ioctl FKQTUNE: what to set, or value << 16. */
int heddle_kqueue_tune(int kq, uint32_t word);
#define KQTUNE_FREQ 1
#define KQTUNE_RTSHARE 2

/* How much of what a thread is told at once may be EV_REALTIME: 1 to 100 per cent, 100 at first. */
int heddle_kqueue_share(int kq, uint32_t percent);

/* How often in a second a thread shall look for EV_REALTIME events: it is told fewer at once if they take long. 0, as at first: no rule. */
int heddle_kqueue_frequency(int kq, uint32_t hertz);

/* What the queue's threads have done, as text: a line a thread, for people. Writes as much as there is room for, with a zero behind it; how
 * long the whole is (SKQ's FKQMPRNT). */
int heddle_kqueue_stats(int kq, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
