/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the module share. The protocol between senders, the context switch and the processor is described
 * in docs/design/uintr.md, and modelled in crates/sync/src/uintr_model.rs.
 */
#ifndef UINTR_H
#define UINTR_H

#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/workqueue.h>
#include <asm/irq_vectors.h>

#include "include/heddle_uintr.h"

/* Intel's Software Developer's Manual, volume 3, chapter "User Interrupts". The kernel's headers have none of this. */
#define MSR_UINTR_RR 0x985
#define MSR_UINTR_HANDLER 0x986
#define MSR_UINTR_STACKADJUST 0x987
#define MSR_UINTR_MISC 0x988 /* size of the target table - 1, and above it UINV */
#define MSR_UINTR_PD 0x989
#define MSR_UINTR_TT 0x98a
#define UINTR_TT_ENABLE BIT_ULL(0)
#define CR4_UINTR BIT(25)

/*
 * The vector of notifications. KVM reserves it for posted interrupts of nested guests, and all that its handler does is
 * to count and to acknowledge: right for a notification that arrives after its receiver has left the CPU. One of KVM's
 * own that arrives while a receiver runs makes the processor look at an empty list.
 */
#define NOTIFICATION_VECTOR POSTED_INTR_NESTED_VECTOR

/* Posted-interrupt descriptor of a user: what senders write and the processor of the receiver reads. */
struct uintr_upid {
	u64 state; /* ON, SN, vector, destination */
	u64 pir; /* posted vectors */
	u64 unused[6];
} __aligned(64);
#define UPID_ON BIT_ULL(0) /* a notification is on its way */
#define UPID_SN BIT_ULL(1) /* send none */

/* An entry of the target table. */
struct uintr_uitte {
	u64 what; /* valid, and from bit 8 on the vector */
	u64 upid;
};
#define UITTE_VALID BIT_ULL(0)

#define MAX_RECEIVERS 256
#define MAX_TARGETS 1024

/* An open device: of one process. */
struct process {
	struct kref refs; /* the open file, and each registered thread */
	struct mm_struct *mm; /* for comparing: only the structure is kept */
	struct mutex lock;
	struct uintr_upid *upids; /* of receivers, by number; never freed before the table is unreachable */
	struct thread **receivers; /* by number; a dead one keeps its place as long as targets lead to it */
	struct uintr_uitte *targets;
	u32 used; /* no target is at or above this index */
	atomic64_t resumed, migrated, ticks, ticks_merged;
};

/* A registered thread. */
struct thread {
	struct preempt_notifier notifier;
	struct kref refs; /* its registration, the list of receivers, work that is queued */
	struct process *process;
	struct task_struct *task; /* for comparing */
	u32 number; /* as a receiver */
	bool dead; /* unregistered: only its place among the receivers is left */
	struct uintr_upid *upid; /* NULL if it only sends */
	u64 handler, stack_adjust;
	/* While it has no CPU. */
	u64 rr; /* vectors that are pending */
	bool uif; /* whether they may be delivered */
	int cpu; /* on which it is, or was last */
	bool loaded; /* its state is in the processor */
	/* Its timer. */
	struct mutex setting; /* held by who sets it */
	u32 timer_kind, timer_vector;
	u64 period_ns;
	bool once;
	struct hrtimer timer;
	raw_spinlock_t timer_lock; /* held where the timer begins, moves and rests */
	int timer_cpu;
	bool timer_rests; /* until the thread has a CPU again */
	/* With a delegated timer. */
	u32 apic_count;
	bool delegated; /* the CPU's timer is the thread's at the moment */
	u32 kernel_lvtt, kernel_tdcr;
	struct delayed_work keeper; /* gives it back each jiffy; has a reference of its own */
};

extern unsigned int max_threads, min_period_us, keeper;

/* thread.c */
int uintr_register(struct process *process, struct heddle_uintr_register *what);
int uintr_unregister(struct process *process);
int uintr_connect(struct process *process, struct heddle_uintr_target *what);
int uintr_disconnect(struct process *process, u32 index);
struct process *uintr_process_new(void);
void uintr_process_put(struct process *process);
void uintr_thread_put(struct thread *thread);
struct thread *uintr_receiver(struct process *process, u32 number);
struct thread *uintr_thread_of(struct task_struct *task);
void uintr_end_current(void);
void uintr_post(struct thread *thread, u32 vector);
void uintr_reload(struct thread *thread);
void uintr_take_posted(struct thread *thread);
u32 uintr_threads(void);
u32 uintr_processes(void);

/* timer.c */
void uintr_timer_init(struct thread *thread);
int uintr_timer_set(struct process *process, const struct heddle_uintr_timer *what);
void uintr_timer_stop(struct thread *thread);
void uintr_timer_follow(struct thread *thread);
bool uintr_is_keeping(unsigned int cpu);
int uintr_timers_start(void);
void uintr_timers_stop(void);
void uintr_delegate(struct thread *thread);
void uintr_undelegate(struct thread *thread);

#endif
