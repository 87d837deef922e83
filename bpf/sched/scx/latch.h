/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The latch of a CPU: a queue for the one thread that is committed to it. It is ours and not the kernel's local
 * queue, so that the commit can be taken back until the CPU takes the thread. */
#ifndef HEDDLE_SCX_LATCH_H
#define HEDDLE_SCX_LATCH_H

#include "lifecycle.h"
#include "message.h"
#include "slot.h"
#include "words.h"

/* Moves the thread in `slot` from one queue to another; a slice of 0 keeps its present one. False if it was no
 * longer there. The queue's iterator guarantees that: a thread that was taken out meanwhile, even if it was put
 * back, is not the one that the iterator returned. */
static __always_inline bool hd_move_slot(__u64 from, __u64 to, __u32 slot, __u64 slice)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;

	bpf_iter_scx_dsq_new(&it, from, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!hd_is_in(p, slot))
			continue;
		if (slice)
			hd_move_slice(&it, slice);
		moved = hd_move(&it, p, to, 0);
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/* Parks a thread again that was committed through `from`; its slot is claimed. Its wait goes on. The queue first
 * and the word after: while the word says latched, no commit takes it from where it is parked; with the word first,
 * the CPU could take it in between. */
static __always_inline bool hd_take_back(__u64 from, struct hd_thread *t, __u32 slot, bool notify)
{
	__u32 cpu = t->cpu;
	bool moved = hd_move_slot(from, HD_PARKING(t->enclave, slot), slot, 0);

	if (moved && hd_change(t, hd_is(HD_LATCHED, cpu), hd_is(HD_PARKED, cpu)) && notify)
		hd_notify(HD_THREAD_PREEMPTED, slot, cpu, 1);
	return moved;
}

/* Removes the thread in `slot`, which is claimed, from the latch of a CPU. False if the CPU has just taken it. */
__noinline int hd_unlatch_claimed(__u32 cpu, __u32 slot, bool notify)
{
	struct hd_thread *t = hd_thread(slot);
	bool moved = false;

	if (!t)
		return false;
	bpf_rcu_read_lock();
	if (t->state == HD_LATCHED && t->cpu == cpu)
		moved = hd_take_back(HD_LATCH(cpu), t, slot, notify);
	bpf_rcu_read_unlock();
	if (moved)
		hd_not_latched(cpu, slot);
	return moved;
}

/* Empties the latch of a CPU. Returns the slot plus one of the thread that was in it; 0 if there was none, or the
 * CPU has just taken it: then the word still names it until it runs. */
__noinline __u32 hd_unlatch(__u32 cpu, bool notify)
{
	struct hd_cpu *c = hd_cpu(cpu);
	__u32 old = c ? ACCESS(c->latched) : 0;
	bool moved;

	if (!old || !hd_claim(old - 1))
		return 0;
	moved = hd_unlatch_claimed(cpu, old - 1, notify);
	hd_unclaim(old - 1);
	return moved ? old : 0;
}

#endif
