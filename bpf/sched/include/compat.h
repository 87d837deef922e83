/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The kernel's functions for schedulers, under one name for Linux 6.12 to 7.2. Which of them exist is decided when
 * the object is loaded; calls of the others are dead code then. Tried on 6.16 and 7.2; what only
 * other kernels have is compiled, but never ran. */
#ifndef HEDDLE_SCHED_COMPAT_H
#define HEDDLE_SCHED_COMPAT_H

#include "kernel.h"

struct bpf_iter_scx_dsq {
	__u64 opaque[6];
} __attribute__((aligned(8)));

/* Since 6.12. */
extern __s32 scx_bpf_create_dsq(__u64 id, __s32 node) __ksym;
extern void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
extern __s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern __s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, __u64 flags) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym;
extern __u32 scx_bpf_nr_cpu_ids(void) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
extern void scx_bpf_exit_bstr(__s64 code, char *text, unsigned long long *data, __u32 bytes) __ksym __weak;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, __u64 id, __u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
extern bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *mask) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

/* Since 6.13; before that by another name. */
extern void scx_bpf_dsq_insert(struct task_struct *p, __u64 id, __u64 slice, __u64 flags) __ksym __weak;
extern void scx_bpf_dispatch(struct task_struct *p, __u64 id, __u64 slice, __u64 flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(__u64 id) __ksym __weak;
extern bool scx_bpf_consume(__u64 id) __ksym __weak;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 id, __u64 flags) __ksym __weak;
extern bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 id,
					__u64 flags) __ksym __weak;
extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, __u64 slice) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it, __u64 slice) __ksym __weak;

/* Since 6.19; the older names above remain for a while. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym __weak;

static __always_inline void hd_insert(struct task_struct *p, __u64 id, __u64 slice, __u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, id, slice, flags);
	else
		scx_bpf_dispatch(p, id, slice, flags);
}

static __always_inline bool hd_move_to_local(__u64 id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(id);
	return scx_bpf_consume(id);
}

/* Moves the thread that the iterator has just returned, if it is still in its place. */
static __always_inline bool hd_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 id, __u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move))
		return scx_bpf_dsq_move(it, p, id, flags);
	return scx_bpf_dispatch_from_dsq(it, p, id, flags);
}

static __always_inline void hd_move_slice(struct bpf_iter_scx_dsq *it, __u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_set_slice))
		scx_bpf_dsq_move_set_slice(it, slice);
	else
		scx_bpf_dispatch_from_dsq_set_slice(it, slice);
}

static __always_inline void hd_set_slice(struct task_struct *p, __u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

#endif
