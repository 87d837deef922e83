/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The machine: its queues, and its CPUs that come and go. */
#ifndef HEDDLE_SCX_MACHINE_H
#define HEDDLE_SCX_MACHINE_H

#include "message.h"

static long hd_make_parking(__u32 index, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_PARKING(index / HD_BUCKETS, index % HD_BUCKETS), -1);
	return *error != 0;
}

static long hd_make_latch(__u32 cpu, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_LATCH(cpu), -1);
	return *error != 0;
}

static long hd_make_fast(__u32 index, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_FAST(index / HD_NODES, index % HD_NODES), -1);
	return *error != 0;
}

static long hd_mark_online(__u32 cpu, void *unused)
{
	const struct cpumask *mask = scx_bpf_get_online_cpumask();
	struct hd_cpu *c = hd_cpu(cpu);

	if (c)
		c->online = bpf_cpumask_test_cpu(cpu, mask);
	scx_bpf_put_cpumask(mask);
	return 0;
}

static __always_inline __s32 hd_make_queues(void)
{
	__u32 cpus = scx_bpf_nr_cpu_ids();
	struct hd_machine *all = hd_all();
	__s32 error = 0;

	if (!all)
		return -22;
	all->layout = HD_LAYOUT_HASH;
	if (cpus > HD_CPUS)
		cpus = HD_CPUS;
	bpf_loop(HD_ENCLAVES * HD_BUCKETS, hd_make_parking, &error, 0);
	if (!error)
		bpf_loop(cpus, hd_make_latch, &error, 0);
	if (!error)
		bpf_loop(HD_ENCLAVES * HD_NODES, hd_make_fast, &error, 0);
	bpf_loop(cpus, hd_mark_online, NULL, 0);
	return error;
}

/* The rest of what happens to a CPU that goes is told by the messages of the threads that it had. */
static __always_inline void hd_on_line(__u32 cpu, __u32 online)
{
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e = c && c->enclave ? hd_enclave(c->enclave) : NULL;

	if (!c)
		return;
	c->online = online;
	if (e && e->flags & HD_FLAG_CPU_NEWS)
		hd_tell_cpu(online ? HD_CPU_AVAILABLE : HD_CPU_BUSY, cpu);
}

#endif
