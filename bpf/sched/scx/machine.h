/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The machine: its queues, and CPUs that come and go. */
#ifndef HEDDLE_SCX_MACHINE_H
#define HEDDLE_SCX_MACHINE_H

#include "lifecycle.h"
#include "message.h"

static long hd_make_parking(__u32 index, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_PARKING(index / HD_BUCKETS, index % HD_BUCKETS), -1);
	return *error != 0;
}

static long hd_make_latch(__u32 cpu, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_LATCH(cpu), -1);
	if (!*error)
		*error = scx_bpf_create_dsq(HD_STAGE(cpu), -1);
	if (!*error)
		*error = scx_bpf_create_dsq(HD_OWN(cpu), -1);
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

/* The kernel has ended the scheduler; its threads are the default scheduler's, except for the name of their class.
 * Guardians see that by the code, agents by the phase. */
static __always_inline void hd_on_exit(struct scx_exit_info *info)
{
	struct hd_last_words *said = hd_exit_text(0);
	struct hd_machine *all = hd_all();

	if (!all || !said)
		return;
	bpf_probe_read_kernel_str(said->reason, sizeof(said->reason), info->reason);
	bpf_probe_read_kernel_str(said->details, sizeof(said->details), info->msg);
	__sync_lock_test_and_set(&all->exit_code, info->kind);
	for (__u32 id = 1; id < HD_ENCLAVES; id++) {
		struct hd_enclave *e = hd_enclave(id);

		if (e && e->state != HD_ENCLAVE_FREE)
			__sync_lock_test_and_set(hd_phase(e), hd_phase_is(HD_ENCLAVE_ORPHAN, 0));
	}
}

/* The messages of the threads that a CPU had report the rest of its going offline. */
static __always_inline void hd_on_line(__u32 cpu, __u32 online)
{
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e = c && c->enclave ? hd_enclave(c->enclave) : NULL;

	if (!c)
		return;
	c->online = online;
	if (e && e->flags & HD_FLAG_CPU_MESSAGES)
		hd_notify_cpu(online ? HD_CPU_AVAILABLE : HD_CPU_BUSY, cpu);
}

#endif
