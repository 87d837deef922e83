/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Slots of threads: taking them, changing their word, sending their messages, freeing them. */
#ifndef HEDDLE_SCHED_RT_SLOTS_H
#define HEDDLE_SCHED_RT_SLOTS_H

#include "rt.h"

static __always_inline struct hd_enclave *the_enclave(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&enclave, &zero);
}

/* The slot of thread `tid` of process `tgid`. While a thread executes a program, the table has it by a number that
 * is no longer its own, and may be another thread's: then there is no match. */
static __always_inline __u32 *slot_of(__u32 tid, __u32 tgid)
{
	__u32 *slot = tid ? bpf_map_lookup_elem(&tids, &tid) : NULL;
	struct hd_thread *w = slot ? bpf_map_lookup_elem(&threads, slot) : NULL;

	return w && w->tgid == tgid ? slot : NULL;
}

/* Changes the state from one of `from` (bits) to `to`. Returns the next sequence number; 0 if the state was none of
 * `from`. A commitment stays if `keep`; if `committed` is not RT_ANY, only a thread that is committed there is
 * changed. */
static __always_inline __u64 turn(struct rt_thread *t, __u32 from, __u32 to, __u32 committed, bool keep)
{
	for (int i = 0; i < RT_RACES; i++) {
		__u64 old = ACCESS(t->live);
		__u64 seq = (old >> RT_SEQ_SHIFT) + 1;
		__u64 new = seq << RT_SEQ_SHIFT | (keep ? old & RT_COMMITTED : 0) | to;

		if (!(1u << (old & 15) & from))
			return 0;
		if (committed != RT_ANY && (__u32)((old & RT_COMMITTED) >> 4) != committed)
			return 0;
		if (__sync_val_compare_and_swap(&t->live, old, new) == old)
			return seq;
	}
	return 0;
}

static __noinline int send(__u32 slot, __u32 kind, __u64 seq, __u64 info)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct hd_message *m;
	struct hd_queue *q;
	__u64 aseq;
	void *ring;
	__u32 queue;

	if (!w)
		return 0;
	w->tseq = seq;
	queue = w->queue;
	q = bpf_map_lookup_elem(&queues, &queue);
	if (!q)
		return 0;
	aseq = __sync_fetch_and_add(&q->aseq, 1) + 1;
	ring = bpf_map_lookup_elem(&rings, &queue);
	m = ring ? bpf_ringbuf_reserve(ring, sizeof *m, 0) : NULL;
	if (!m) {
		__sync_fetch_and_add(&q->lost, 1);
		return 0;
	}
	m->kind = kind;
	m->slot = slot;
	m->tid = w->tid;
	m->cpu = w->cpu;
	m->tseq = seq;
	m->aseq = aseq;
	m->at = bpf_ktime_get_ns();
	m->info = info;
	bpf_ringbuf_submit(m, q->wakeup ? 0 : BPF_RB_NO_WAKEUP);
	return 0;
}

/* Takes a slot for `tid`, blocked and with sequence number 0; HD_THREADS if there is none. */
static __noinline __u32 take_slot(__u32 tid, __u32 tgid)
{
	__u32 at = tid * 2654435761u >> 7;

	for (int i = 0; i < RT_TRIES; i++) {
		__u32 slot = (at + i) & (HD_THREADS - 1);
		struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
		struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);

		if (!w || !t || __sync_val_compare_and_swap(&w->tid, 0, tid) != 0)
			continue;
		w->tgid = tgid;
		w->state = HD_BLOCKED;
		w->tseq = w->on_at = w->runtime = w->runnable_at = 0;
		w->enclave = 1;
		w->weight = 100;
		w->consumed = 0;
		t->since = t->committed = t->began = 0;
		t->running = t->policy = 0;
		t->changing = 0;
		ACCESS(t->live) = RT_BLOCKED;
		return slot;
	}
	return HD_THREADS;
}

static __always_inline void count_thread(struct hd_thread *w, __s64 by)
{
	struct hd_enclave *e = the_enclave();
	__u32 queue = w->queue;
	struct hd_queue *q = bpf_map_lookup_elem(&queues, &queue);

	if (e)
		__sync_fetch_and_add(&e->threads, by);
	if (q)
		__sync_fetch_and_add(&q->associated, by);
}

/* Ends the management of a thread; its slot is free when its agent has read the message. */
static __noinline int end_slot(__u32 slot, __u32 tid, __u32 kind)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);
	__u64 seq;

	bpf_map_delete_elem(&tids, &tid);
	if (!w || !t)
		return 0;
	seq = turn(t, 1 << RT_BLOCKED | 1 << RT_RUNNABLE, RT_GONE, RT_ANY, false);
	if (!seq)
		return 0;
	w->state = HD_FREE;
	count_thread(w, -1);
	send(slot, kind, seq, 0);
	return 1;
}

#endif
