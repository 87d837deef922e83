/* A part of libevent's interface over Heddle's event queue: any number of threads may be in event_base_loop
 * of one base, and the queue's policy chooses which of them runs an event's callback. Link with
 * -lheddle_event in place of -levent.
 *
 * Names, types, flags and results are libevent 2.1's. Differences:
 *
 * - An event's callback runs in one thread at a time, whichever that is. It may delete the event, set it and
 *   add it again, as programs do to switch from reading to writing: nothing is delivered before it has
 *   returned.
 * - event_del waits for the callback to return if another thread is running it. So two callbacks must not
 *   delete each other's event; event_del_noblock does not wait.
 * - event_base_loopexit and event_base_loopbreak end the loops of all threads.
 * - A loop joins the queue when it begins and leaves it when it ends. Calling event_base_loop with
 *   EVLOOP_ONCE again and again works, but pays for that each time.
 * - A descriptor is watched from when the event is added: call event_del before close.
 *
 * Not supported: buffers, bufferevents, listeners, DNS, HTTP, EV_FINALIZE, EV_CLOSED, watchers, more than two
 * priorities (the first is high, all others are normal), several calls for a signal that came several times,
 * and event_reinit: a forked child makes its own base.
 *
 * Errors: -1 or NULL, and errno: EINVAL (an unexpected NULL, an event that was not set, an unknown policy, a
 * negative time), ENOMEM (65,536 events; a timeout counts as one), EBADF (a descriptor that is not open; a
 * base of the parent process). */
#ifndef HEDDLE_LIBEVENT_EVENT_H
#define HEDDLE_LIBEVENT_EVENT_H

/* Some programs rely on libevent's header for these. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIBEVENT_VERSION "2.1.12-heddle"
#define LIBEVENT_VERSION_NUMBER 0x02010c00

/* What happens, and what an event asks for. */
#define EV_TIMEOUT 0x01
#define EV_READ 0x02
#define EV_WRITE 0x04
#define EV_SIGNAL 0x08
/* The event stays added when its callback is called. */
#define EV_PERSIST 0x10
/* Edge-triggered: reported once, until there is more. The callback reads until it would block. */
#define EV_ET 0x20
/* Heddle's: only for the thread that adds the event, while it is in the base's loop (SKQ's EV_AFFINITY). The
 * thread may add the event before it enters the loop, and may leave and enter again: the event waits for it. */
#define EV_AFFINITY 0x200
/* Heddle's: high priority (SKQ's EV_REALTIME); see heddle_event_base_priority. */
#define EV_HIGH 0x400

/* Flags of event_base_loop: until callbacks were called once; without waiting; even if no event is added. */
#define EVLOOP_ONCE 0x01
#define EVLOOP_NONBLOCK 0x02
#define EVLOOP_NO_EXIT_ON_EMPTY 0x04

enum event_base_config_flag {
	EVENT_BASE_FLAG_NOLOCK = 0x01,
	EVENT_BASE_FLAG_IGNORE_ENV = 0x02,
	EVENT_BASE_FLAG_STARTUP_IOCP = 0x04,
	EVENT_BASE_FLAG_NO_CACHE_TIME = 0x08,
	EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST = 0x10,
	EVENT_BASE_FLAG_PRECISE_TIMER = 0x20
};

typedef int evutil_socket_t;
typedef void (*event_callback_fn)(evutil_socket_t, short, void *);

struct event_base;
struct event_config;

/* An event, in memory of the program. Only event_set and event_assign write it, and only the calls below read
 * it; programs may read ev_base. */
struct event {
	struct event_base *ev_base;
	evutil_socket_t ev_fd;
	short ev_events;
	short ev_unused;
	event_callback_fn ev_callback;
	void *ev_arg;
	unsigned long ev_heddle[12];
};

/* Bases. All flags of a configuration are accepted and have no effect: every base may be shared by threads. */
struct event_config *event_config_new(void);
void event_config_free(struct event_config *config);
int event_config_set_flag(struct event_config *config, int flag);
int event_config_avoid_method(struct event_config *config, const char *method);
struct event_base *event_base_new(void);
struct event_base *event_base_new_with_config(const struct event_config *config);
/* The same, and makes it the base that event_set gives to events. */
struct event_base *event_init(void);
/* Ends the loops of all other threads, waits for them and frees the base. Events stay the program's; nothing
 * more is delivered. */
void event_base_free(struct event_base *base);
int event_base_priority_init(struct event_base *base, int priorities);
const char *event_base_get_method(const struct event_base *base);

/* Handles events in the calling thread, until it is asked to end (0) or no event is added, active or handled
 * any more (1); -1 on failure. */
int event_base_loop(struct event_base *base, int flags);
int event_base_dispatch(struct event_base *base);
/* Ends all loops: after their current batches, now or after a time; or after the callback that each is in.
 * Loops that begin later are not affected, except that event_base_loopexit without a running loop affects the
 * next one. */
int event_base_loopexit(struct event_base *base, const struct timeval *after);
int event_base_loopbreak(struct event_base *base);
/* Whether the last loops were asked to end. */
int event_base_got_exit(struct event_base *base);
int event_base_got_break(struct event_base *base);

/* Events. */
void event_set(struct event *event, evutil_socket_t fd, short events, event_callback_fn function, void *arg);
int event_assign(struct event *event, struct event_base *base, evutil_socket_t fd, short events,
		 event_callback_fn function, void *arg);
int event_base_set(struct event_base *base, struct event *event);
struct event *event_new(struct event_base *base, evutil_socket_t fd, short events, event_callback_fn function,
			void *arg);
void event_free(struct event *event);
/* With a timeout, the callback is called with EV_TIMEOUT if nothing else happens for that long. Adding the
 * event again sets the new timeout, if there is one. */
int event_add(struct event *event, const struct timeval *timeout);
int event_del(struct event *event);
int event_del_block(struct event *event);
int event_del_noblock(struct event *event);
/* Delivers `events` once, whether the event is added or not. */
void event_active(struct event *event, int events, short calls);
/* Returns which of `events` it waits for or is about to report. The time, if EV_TIMEOUT is asked for, is that
 * of gettimeofday. */
int event_pending(const struct event *event, short events, struct timeval *timeout);
int event_initialized(const struct event *event);
int event_priority_set(struct event *event, int priority);
struct event_base *event_get_base(const struct event *event);
evutil_socket_t event_get_fd(const struct event *event);
short event_get_events(const struct event *event);
event_callback_fn event_get_callback(const struct event *event);
void *event_get_callback_arg(const struct event *event);

const char *event_get_version(void);
uint32_t event_get_version_number(void);
const char *event_get_method(void);

#define evtimer_assign(event, base, function, arg) event_assign((event), (base), -1, 0, (function), (arg))
#define evtimer_new(base, function, arg) event_new((base), -1, 0, (function), (arg))
#define evtimer_set(event, function, arg) event_set((event), -1, 0, (function), (arg))
#define evtimer_add(event, timeout) event_add((event), (timeout))
#define evtimer_del(event) event_del(event)
#define evtimer_pending(event, timeout) event_pending((event), EV_TIMEOUT, (timeout))
#define evtimer_initialized(event) event_initialized(event)

#define evsignal_assign(event, base, signal, function, arg) \
	event_assign((event), (base), (signal), EV_SIGNAL | EV_PERSIST, (function), (arg))
#define evsignal_new(base, signal, function, arg) event_new((base), (signal), EV_SIGNAL | EV_PERSIST, (function), (arg))
#define evsignal_set(event, signal, function, arg) \
	event_set((event), (signal), EV_SIGNAL | EV_PERSIST, (function), (arg))
#define evsignal_add(event, timeout) event_add((event), (timeout))
#define evsignal_del(event) event_del(event)
#define evsignal_pending(event, timeout) event_pending((event), EV_SIGNAL, (timeout))
#define evsignal_initialized(event) event_initialized(event)

#define event_get_signal(event) ((int)event_get_fd(event))
#define evutil_gettimeofday(now, zone) gettimeofday((now), (zone))
#define evutil_timercmp(one, other, order) timercmp((one), (other), order)
#define evutil_timeradd(one, other, sum) timeradd((one), (other), (sum))
#define evutil_timersub(one, other, difference) timersub((one), (other), (difference))
#define evutil_timerclear(time) timerclear(time)
#define evutil_timerisset(time) timerisset(time)

/* Heddle's: makes a base with a policy, `name` or `name:key=value,...` (docs/policies); NULL for the default,
 * hybrid. */
struct event_base *heddle_event_base_new(const char *policy);
/* Changes the policy while threads are in the loop; no event is lost. */
int heddle_event_base_policy(struct event_base *base, const char *policy);
/* Sets how much of a batch may be of high priority, 1 to 100 per cent (SKQ's rtshare), and how often a second
 * a thread should look for such events, 0 for no rule (SKQ's rtfreq). Initially 100 and 0. */
int heddle_event_base_priority(struct event_base *base, int share, int frequency);

/* What a thread has done in the base's loops. */
struct heddle_event_thread {
	uint32_t tid; /* as in gettid */
	int in_loop;
	uint64_t calls; /* of callbacks */
	uint64_t waits;
};
/* Fills in up to `room` entries. Returns how many threads there are and have been. */
int heddle_event_base_threads(struct event_base *base, struct heddle_event_thread *threads, int room);
/* Writes the same as text, a line each, and the queue's own table of the threads that are in the loop now:
 * steals, times, lengths. */
int heddle_event_base_dump(struct event_base *base, int fd);

#ifdef __cplusplus
}
#endif

#endif
