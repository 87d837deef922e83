/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Threads on their CPUs. */
#ifndef HEDDLE_SCX_RUN_H
#define HEDDLE_SCX_RUN_H

#include "park.h"

static __always_inline bool hd_runs_free(struct task_struct *p, struct hd_thread *t)
{
	struct hd_enclave *e = hd_enclave(t->enclave);

	/* The kernel lets a thread run that is ending. */
	return !e || hd_is_orphan(e) || (p->flags & PF_EXITING);
}

static __always_inline void hd_on_running(struct task_struct *p)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
	__u32 cpu = scx_bpf_task_cpu(p), was;
	__u64 before, now = bpf_ktime_get_ns();
	struct hd_cpu *c = hd_cpu(cpu);

	if (!k || !t || !c)
		return;
	k->yielded = 0;
	t->on_at = now;
	before = hd_set(t, HD_ONCPU, cpu);
	was = (__u32)before;
	if (c->enclave == t->enclave) {
		c->current = k->slot;
		c->since = now;
	}
	if (was == HD_LATCHED && before >> 32 & HD_SOMEWHERE)
		hd_notify(HD_THREAD_TAKEN, k->slot - 1, cpu, 0);
	else if (was == HD_LATCHED)
		hd_not_latched(before >> 32, k->slot - 1);
	/* The thread was not committed: it opted in while it ran. It is parked at the next tick. Parking it at once would
	 * be a loop while the kernel bypasses us (suspend, another scheduler being loaded): there it runs again however
	 * often it is stopped. A thread that no agent can commit has a slice of the kernel's. */
	if ((was == HD_BLOCKED || was == HD_PARKED || was == HD_STAGED) && !k->outside && !hd_runs_free(p, t))
		hd_set_slice(p, 1);
	hd_orphan_running(p, t->enclave);
}

static __always_inline void hd_on_stopping(struct task_struct *p, bool runnable)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
	__u64 now = bpf_ktime_get_ns();

	if (!t)
		return;
	t->runtime += now - t->on_at;
	t->on_at = now;
	if (!runnable)
		return;
	hd_not_current(t->cpu, k->slot - 1, now);
	if (hd_runs_free(p, t))
		return;
	/* With a slice left, the kernel would keep the thread at the head of this CPU's own queue when an ordinary thread
	 * takes the CPU, without notice to us or the agent. */
	hd_set_slice(p, 0);
}

static __always_inline void hd_on_quiescent(struct task_struct *p, __u64 flags)
{
	struct hd_task *k = hd_task(p);
	struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
	__u64 before;

	/* If it is taken out of a queue for any other reason than sleep, it is back in a moment. */
	if (!t || !(flags & SCX_DEQ_SLEEP))
		return;
	k->yielded = 0;
	before = hd_set(t, HD_BLOCKED, t->cpu);
	hd_not_current(before >> 32, k->slot - 1, bpf_ktime_get_ns());
	if ((__u32)before == HD_LATCHED)
		hd_not_latched(before >> 32, k->slot - 1);
	if (k->fresh) {
		k->fresh = 0;
		hd_notify(HD_THREAD_CREATED, k->slot - 1, before >> 32, 0);
	} else {
		hd_notify(HD_THREAD_BLOCKED, k->slot - 1, before >> 32, 0);
	}
}

static __always_inline void hd_on_yield(struct task_struct *p)
{
	struct hd_task *k = hd_task(p);

	if (k)
		k->yielded = 1;
	hd_set_slice(p, 0);
}

static __always_inline void hd_on_tick(struct task_struct *p)
{
	__u32 cpu = scx_bpf_task_cpu(p);
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e = c && c->enclave ? hd_enclave(c->enclave) : NULL;

	if (!e)
		return;
	c->ticks++;
	if (e->flags & HD_FLAG_TICKS)
		hd_notify_cpu(HD_TIMER_TICK, cpu);
}

#endif
