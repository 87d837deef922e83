/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The occupants of the enclaves' CPUs. These programs run at every switch and wakeup of the machine: for other CPUs
 * they read one word. */
#ifndef HEDDLE_SCX_OCCUPANT_H
#define HEDDLE_SCX_OCCUPANT_H

#include "message.h"

static __always_inline __u32 hd_occupant_of(struct task_struct *p, struct hd_cpu *c, struct hd_enclave *e)
{
	if (p->pid == 0)
		return HD_IDLE;
	if (p->policy == SCHED_EXT)
		return c->current ? HD_MANAGED : HD_ORDINARY;
	if (e->agent && p->tgid == e->agent)
		return HD_AGENT;
	return p->prio < FIRST_ORDINARY_PRIO ? HD_REALTIME : HD_ORDINARY;
}

static __always_inline bool hd_is_above(__u32 occupant)
{
	return occupant == HD_ORDINARY || occupant == HD_REALTIME;
}

SEC("tp_btf/sched_switch")
int hd_switch(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	__u32 cpu = bpf_get_smp_processor_id(), before, now;
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e = c && c->enclave ? hd_enclave(c->enclave) : NULL;

	if (!e)
		return 0;
	before = c->occupant;
	now = hd_occupant_of(next, c, e);
	if (before == now)
		return 0;
	c->occupant = now;
	c->since = bpf_ktime_get_ns();
	if (hd_is_above(before) != hd_is_above(now) && e->flags & HD_FLAG_CPU_MESSAGES)
		hd_notify_cpu(hd_is_above(now) ? HD_CPU_BUSY : HD_CPU_AVAILABLE, cpu);
	return 0;
}

/* An unmanaged thread waits on a CPU that an agent has: it would wait forever if that agent spins. */
static __always_inline void hd_waits(struct task_struct *p, __u32 cpu)
{
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e;

	if (!c || c->occupant != HD_AGENT || p->policy == SCHED_EXT)
		return;
	e = hd_enclave(c->enclave);
	if (e && p->tgid != e->agent)
		__sync_fetch_and_add(&c->handoff, 1);
}

SEC("tp_btf/sched_wakeup")
int hd_wakeup(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];

	hd_waits(p, scx_bpf_task_cpu(p));
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int hd_wakeup_new(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];

	hd_waits(p, scx_bpf_task_cpu(p));
	return 0;
}

/* Also before a wakeup elsewhere, which is counted twice then; that costs only a second check. */
SEC("tp_btf/sched_migrate_task")
int hd_migrate(__u64 *ctx)
{
	hd_waits((void *)ctx[0], ctx[1]);
	return 0;
}

#endif
