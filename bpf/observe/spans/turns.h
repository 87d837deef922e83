/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What a thread does in its turn, and which request is charged for it. */
#ifndef HEDDLE_OBSERVE_SPANS_TURNS_H
#define HEDDLE_OBSERVE_SPANS_TURNS_H

#include "maps.h"

/* Returns the request of the thread's turn, if it is in work still. */
static __always_inline struct ob_socket *turn_of(struct ob_thread *t)
{
	struct ob_socket *s;

	if (!t->turn || !ob_is(&socket_keys, t->entry, t->turn))
		return NULL;
	s = socket_at(t->entry);
	return s && s->state == OB_OPEN ? s : NULL;
}

static __always_inline void clear_sums(struct ob_thread *t, __u64 now)
{
	t->cpu = t->run_queue = 0;
	for (int i = 0; i < OB_REASONS; i++)
		t->off[i] = 0;
	t->mark = now;
}

static __always_inline void begin_turn(struct ob_thread *t, __u64 key, __u32 entry, __u64 now)
{
	clear_sums(t, now);
	t->turn = key;
	t->entry = entry;
	t->handed = t->idle = 0;
	t->on = now;
	t->off_at = 0;
}

/* Accounts for the time in which the thread, which has its CPU again, was off it. */
static __always_inline void add_gap(struct ob_thread *t, struct task_struct *p, __u64 now)
{
	__u64 gap, delay;

	if (!t->off_at)
		return;
	/* The switch to it was not seen: tried, no program ran at switches away from two threads of the machine. What it
	 * ran since is not known then, and is usually short beside the time for which it slept. */
	if (t->on <= t->off_at)
		t->on = now;
	gap = t->on > t->off_at ? t->on - t->off_at : 0;
	delay = p->sched_info.run_delay - t->delay;
	/* The kernel's sum is by another clock: its differences may be a little longer than ours. */
	if (delay > gap || t->why == OB_RUNNABLE)
		delay = gap;
	t->run_queue += delay;
	if (t->why < OB_REASONS)
		t->off[t->why & 7] += gap - delay;
	t->off_at = 0;
}

/* Adds up to now what the thread, which runs, has used. */
static __always_inline void add_up(struct ob_thread *t, struct task_struct *p, __u64 now)
{
	if (!t->turn)
		return;
	add_gap(t, p, now);
	if (now > t->on)
		t->cpu += now - t->on;
	t->on = now;
}

static __always_inline __u64 at_most(__u64 time, __u64 *room)
{
	__u64 taken = time < *room ? time : *room;

	*room -= taken;
	return taken;
}

/* Adds the thread's sums to a request: no more than the time since it was read, although a reader and a worker may have
 * worked on it at once, or the thread have begun before. */
static __always_inline void charge(struct ob_socket *s, struct ob_thread *t, __u64 now)
{
	__u64 room = now - s->request.received, before;

	room = room > s->charged ? room - s->charged : 0;
	before = room;
	s->request.cpu += at_most(t->cpu, &room);
	s->request.run_queue += at_most(t->run_queue, &room);
	for (int i = 0; i < OB_REASONS; i++)
		s->request.off[i] += at_most(t->off[i], &room);
	s->charged += before - room;
	clear_sums(t, now);
}

/* The same for a request that the thread got from elsewhere: it may have slept since before the request came. */
static __always_inline void charge_since(struct ob_socket *s, struct ob_thread *t, __u64 now)
{
	if (t->mark < s->request.received) {
		t->run_queue = 0;
		for (int i = 0; i < OB_REASONS; i++)
			t->off[i] = 0;
	}
	charge(s, t, now);
}

static __always_inline void report(struct ob_socket *s, struct ob_control *c)
{
	if (s->state == OB_OPEN && !s->request.answered)
		ADD(c->unanswered, 1);
	else if (s->state == OB_OPEN &&
		 bpf_ringbuf_output(&ring, &s->request, sizeof s->request, BPF_RB_NO_WAKEUP))
		ADD(c->lost, 1);
	s->last_answered = s->request.answered;
	s->state = OB_CLOSED;
}

#endif
