/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Runnable threads: parked until their agent commits them to a CPU. */
#ifndef HEDDLE_SCX_PARK_H
#define HEDDLE_SCX_PARK_H

#include "lifecycle.h"
#include "message.h"
#include "words.h"

/* Writes the affinity words: the kernel's mask, or one CPU while the thread cannot leave it. True if they have
 * changed. */
static __noinline int hd_write_affinity(__u32 slot, struct task_struct *p, bool pinned)
{
	struct hd_affinity *a = hd_affinity(slot), now = {};
	__u32 bytes = bpf_core_type_size(struct cpumask), cpu = scx_bpf_task_cpu(p);
	__u64 changed = 0;

	if (!a)
		return 0;
	if (pinned)
		now.cpus[(cpu / 64) % (HD_CPUS / 64)] = 1ULL << (cpu % 64);
	else
		bpf_probe_read_kernel(&now, bytes < sizeof(now) ? bytes : sizeof(now), p->cpus_ptr);
	for (int i = 0; i < HD_CPUS / 64; i++) {
		changed |= a->cpus[i] ^ now.cpus[i];
		a->cpus[i] = now.cpus[i];
	}
	return changed != 0;
}

/* Whether a thread cannot leave its CPU. For the running thread a count of one can be this program's own doing. */
static __always_inline bool hd_is_pinned(struct task_struct *p)
{
	__u32 count = p->migration_disabled;

	return count > 1 || (count == 1 && bpf_get_current_task_btf() != p);
}

/* Lets the agent see, before the message that the thread can run, that it is pinned to one CPU; and when that is
 * over. */
static __always_inline void hd_note_pinned(struct task_struct *p, struct hd_task *k, __u32 slot, __u32 enclave,
					   __u32 cpu)
{
	bool pinned = hd_is_pinned(p);

	if (pinned == k->pinned)
		return;
	k->pinned = pinned;
	if (!hd_write_affinity(slot, p, pinned))
		return;
	k->outside = hd_is_outside(slot, enclave);
	if (!k->fresh)
		hd_notify(HD_THREAD_AFFINITY, slot, cpu, 0);
}

static __always_inline void hd_notify_parked(struct hd_task *k, __u32 slot, __u32 was, __u32 cpu)
{
	__u32 yielded = k->yielded;

	k->yielded = 0;
	if (k->fresh) {
		k->fresh = 0;
		hd_notify(HD_THREAD_CREATED, slot, cpu, 1);
	} else if (was == HD_LATCHED) {
		hd_notify(HD_THREAD_PREEMPTED, slot, cpu, 1);
	} else if (was == HD_ONCPU) {
		hd_notify(yielded ? HD_THREAD_YIELD : HD_THREAD_PREEMPTED, slot, cpu, 0);
	} else if (was == HD_BLOCKED) {
		hd_notify(HD_THREAD_WAKEUP, slot, cpu, 0);
	}
	/* Was parked or staged already: it was only taken out of its queue and put back. A commit that goes on meanwhile
	 * loses its place in the queue and fails; there is nothing new for the agent. */
}

/* The message is sent before the thread is in the queue, where the kernel puts it when this has returned: a commit
 * in that moment does not find it, and answers HD_AGAIN. */
static __always_inline void hd_park(struct task_struct *p, struct hd_task *k, struct hd_thread *t, __u32 slot,
				    __u64 flags)
{
	__u32 cpu = scx_bpf_task_cpu(p), was;
	__u64 before, now = bpf_ktime_get_ns();

	hd_note_pinned(p, k, slot, t->enclave, cpu);
	/* A committed thread that is only put into another queue goes on waiting. */
	if (!hd_wants_cpu(t->state))
		t->runnable_at = now;
	before = hd_set(t, HD_PARKED, cpu);
	was = (__u32)before;
	if (was == HD_LATCHED)
		hd_not_latched(before >> 32, slot);
	if (was == HD_ONCPU)
		hd_not_current(before >> 32, slot, now);
	hd_notify_parked(k, slot, was, cpu);
	/* No commit could ever take it from there, and in half a minute the kernel would end the scheduler for all. */
	if (k->outside)
		hd_plain(p, flags);
	else
		hd_insert(p, HD_PARKING(t->enclave, slot), SCX_SLICE_INF, flags);
}

static __always_inline void hd_on_enqueue(struct task_struct *p, __u64 flags)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
	struct hd_enclave *e = t ? hd_enclave(t->enclave) : NULL;

	if (!k || !t || !e) {
		hd_plain(p, flags);
	} else if (hd_is_orphan(e)) {
		hd_orphan_enqueue(p, t, k->slot - 1, flags);
	} else {
		hd_park(p, k, t, k->slot - 1, flags);
	}
}

#endif
