/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Threads that join and leave, and changes of their attributes. */
#ifndef HEDDLE_SCX_MEMBER_H
#define HEDDLE_SCX_MEMBER_H

#include "park.h"
#include "slot.h"

/* The enclave that a thread belongs to once it opts in: its parent's, or the one that it was admitted to. */
static __always_inline __u32 hd_enclave_of(struct task_struct *p, struct hd_task *k)
{
	__u32 tid = p->pid, enclave = k->enclave;
	__u32 *admitted = bpf_map_lookup_elem(&hd_joining, &tid);

	if (admitted) {
		enclave = *admitted;
		bpf_map_delete_elem(&hd_joining, &tid);
	}
	return enclave;
}

static __always_inline void hd_on_init_task(struct task_struct *p, bool fork)
{
	struct hd_task *k = bpf_task_storage_get(&hd_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_struct *parent = bpf_get_current_task_btf();
	struct hd_task *from = fork && parent ? hd_task(parent) : NULL;

	/* Without memory for this the thread is unmanaged, which is better than no thread. A child of another class (reset
	 * on fork) does not join by opting in later. */
	if (k && from && p->policy == SCHED_EXT)
		k->enclave = from->enclave;
}

static __always_inline void hd_describe(struct task_struct *p, struct hd_thread *t, __u32 slot, __u32 enclave,
					struct hd_enclave *e)
{
	struct hd_queue *queue = hd_queue(e->queue);

	t->tid = p->pid;
	t->tgid = p->tgid;
	t->on_at = t->runtime = t->runnable_at = 0;
	t->queue = e->queue;
	t->weight = p->scx.weight;
	t->consumed = t->tseq;
	hd_write_affinity(slot, p, false);
	/* Written last: it says that the others are there. */
	ACCESS(t->enclave) = enclave;
	hd_set(t, HD_BLOCKED, scx_bpf_task_cpu(p));
	__sync_fetch_and_add(&e->threads, 1);
	if (queue)
		__sync_fetch_and_add(&queue->associated, 1);
}

static __always_inline void hd_on_enable(struct task_struct *p)
{
	struct hd_task *k = hd_task(p);
	struct hd_machine *all = hd_all();
	__u32 enclave = k ? hd_enclave_of(p, k) : 0, slot;
	struct hd_enclave *e = enclave ? hd_enclave(enclave) : NULL;
	struct hd_thread *t;

	if (!k || !all)
		return;
	/* Linux 7.2 does this twice for a thread that joins while it is being made. */
	if (k->slot)
		return;
	if (!e || e->state == HD_ENCLAVE_FREE) {
		k->enclave = 0;
		__sync_fetch_and_add(&all->unmanaged, 1);
		return;
	}
	slot = hd_take_slot();
	t = slot ? hd_thread(slot - 1) : NULL;
	if (!t) {
		__sync_fetch_and_add(&all->no_slot, 1);
		return;
	}
	k->enclave = enclave;
	k->pinned = k->yielded = 0;
	/* A thread that can run, or is just being made, is reported when it is parked: before that it could not be
	 * committed. */
	k->fresh = p->on_rq || p->__state == TASK_NEW;
	hd_describe(p, t, slot - 1, enclave, e);
	k->outside = hd_is_outside(slot - 1, enclave);
	k->slot = slot;
	if (!k->fresh)
		hd_notify(HD_THREAD_CREATED, slot - 1, t->cpu, 0);
}

static __always_inline void hd_on_disable(struct task_struct *p)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
	struct hd_enclave *e = t ? hd_enclave(t->enclave) : NULL;
	struct hd_queue *queue = t ? hd_queue(t->queue) : NULL;
	bool ends = p->flags & PF_EXITING;
	__u64 before;
	__u32 slot;

	if (!k)
		return;
	/* A thread that leaves alive belongs to no enclave; neither do its children. */
	k->enclave = 0;
	if (!t || !e)
		return;
	slot = k->slot - 1;
	k->slot = 0;
	before = hd_set(t, HD_FREE, t->cpu);
	hd_not_current(before >> 32, slot, bpf_ktime_get_ns());
	hd_not_latched(before >> 32, slot);
	hd_notify(ends ? HD_THREAD_DEAD : HD_THREAD_DEPARTED, slot, before >> 32, 0);
	__sync_fetch_and_add(&e->threads, -1);
	if (queue)
		__sync_fetch_and_add(&queue->associated, -1);
	t->tid = t->enclave = 0;
	hd_give_slot(slot);
}

static __always_inline void hd_on_cpumask(struct task_struct *p)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;

	if (!t)
		return;
	k->pinned = 0;
	if (!hd_write_affinity(k->slot - 1, p, false))
		return;
	k->outside = hd_is_outside(k->slot - 1, t->enclave);
	if (!k->fresh)
		hd_notify(HD_THREAD_AFFINITY, k->slot - 1, scx_bpf_task_cpu(p), 0);
}

static __always_inline void hd_on_weight(struct task_struct *p, __u32 weight)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;

	if (!t || t->weight == weight)
		return;
	t->weight = weight;
	if (!k->fresh)
		hd_notify(HD_THREAD_PRIORITY, k->slot - 1, scx_bpf_task_cpu(p), weight);
}

/* A thread that executes a program takes over the number of its process's first thread. The kernel changes the
 * number, loads the program, which may take as long as its file does, and only then comes here. Until then the slot
 * has the old number, which no thread has. */
SEC("tp_btf/sched_process_exec")
int hd_exec(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;

	if (!t || t->tid == p->pid)
		return 0;
	t->tid = p->pid;
	/* Any message carries the new number. */
	if (!k->fresh)
		hd_notify(HD_THREAD_AFFINITY, k->slot - 1, t->cpu, 0);
	return 0;
}

#endif
