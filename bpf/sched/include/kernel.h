/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The few of the kernel's types that the programs read. Only names and types count: the offsets of members are
 * resolved when the object is loaded (CO-RE). The numbers are part of the interface of sched_ext and the same since
 * Linux 6.12. */
#ifndef HEDDLE_SCHED_KERNEL_H
#define HEDDLE_SCHED_KERNEL_H

#include "bpf.h"

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct cpumask {
	unsigned long bits[1];
} KERNEL_TYPE;

struct sched_ext_entity {
	__u64 slice;
	__u32 weight;
} KERNEL_TYPE;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} KERNEL_TYPE;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	unsigned int on_rq;
	int prio;
	unsigned int policy;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	__u32 pid;
	__u32 tgid;
	struct signal_struct *signal;
	struct sched_ext_entity scx;
} KERNEL_TYPE;

struct scx_init_task_args {
	bool fork;
} KERNEL_TYPE;

/* As large as its largest value needs: an enum of the kernel must be declared as one. */
enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
	SCX_EXIT_ERROR = 1024,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
} KERNEL_TYPE;

#define TASK_NEW 0x800
#define PF_EXITING 0x4
#define SCHED_EXT 7
#define FIRST_ORDINARY_PRIO 100

#define SCX_OPS_ENQ_LAST 2ULL
#define SCX_OPS_SWITCH_PARTIAL 8ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ULL
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_DEQ_SLEEP 1ULL
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_DSQ_GLOBAL ((1ULL << 63) | 1)
#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_DSQ_LOCAL_ON ((1ULL << 63) | (1ULL << 62))
#define SCX_SLICE_DFL 20000000ULL
#define SCX_SLICE_INF (~0ULL)

/* The operations; libbpf finds each member by name. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 before, __u64 flags);
	void (*enqueue)(struct task_struct *p, __u64 flags);
	void (*dispatch)(__s32 cpu, struct task_struct *before);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, __u64 flags);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*set_weight)(struct task_struct *p, __u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *mask);
	__s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*cpu_online)(__s32 cpu);
	void (*cpu_offline)(__s32 cpu);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	char name[128];
};

#endif
