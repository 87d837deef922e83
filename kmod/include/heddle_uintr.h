/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * User interrupts on unpatched kernels: the calls of /dev/heddle-uintr.
 *
 * A process opens the device and has a table of targets there, one for all its threads. A thread that registers may
 * send to the targets with SENDUIPI, and receive if it names a handler. Targets are receivers of the same process: no
 * call reaches another one. Everything ends with the thread, with exec, and with the process; a child of fork starts
 * without.
 *
 * Every structure is zero where nothing is said, or the call fails with EINVAL. All calls fail with ESTALE if the
 * device was opened by another process or before exec.
 */
#ifndef HEDDLE_UINTR_H
#define HEDDLE_UINTR_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define HEDDLE_UINTR_DEVICE "/dev/heddle-uintr"

/* Changes whenever a program that was written for another version would not work. */
#define HEDDLE_UINTR_VERSION 1

/* No receiver. */
#define HEDDLE_UINTR_NONE 0xffffffff

/* A receiver has vectors 0 to 63; of those that are pending the highest is delivered first. */
#define HEDDLE_UINTR_VECTORS 64

/* heddle_uintr_info.features */
#define HEDDLE_UINTR_UIRET_UIF (1 << 0) /* UIRET takes UIF from bit 1 of the flags on the stack */
#define HEDDLE_UINTR_X2APIC (1 << 1)
#define HEDDLE_UINTR_APIC_TIMER (1 << 2) /* HEDDLE_UINTR_TIMER_APIC is more than the kernel's: there are two CPUs */

struct heddle_uintr_info {
	__u32 version;
	__u32 features;
	__u32 max_threads; /* registered at a time, in all processes */
	__u32 max_targets; /* in one process */
	__u32 threads; /* registered now, in all processes */
	__u32 processes; /* that have the device open or a thread registered */
	__u64 min_period_ns; /* of a timer that ticks more than once; none is longer than a day */
	/* Of the process. */
	__u64 resumed; /* times that a receiver came back to a CPU and found vectors posted meanwhile */
	__u64 migrated; /* times that a receiver came back to another CPU */
	__u64 ticks; /* of its HEDDLE_UINTR_TIMER_HR timers */
	__u64 ticks_merged; /* of these, found the one before still posted */
	__u64 reserved[4];
};

/* heddle_uintr_register.flags */
#define HEDDLE_UINTR_RECEIVE (1 << 0)

struct heddle_uintr_register {
	__u32 flags;
	/*
	 * In: HEDDLE_UINTR_NONE, or the number of a receiver of this process whose thread has ended, to take its place:
	 * its targets are then the calling thread's. Out: its number; HEDDLE_UINTR_NONE for a thread that only sends.
	 */
	__u32 receiver;
	__u64 handler; /* where user interrupts are delivered */
	/* Taken from the stack pointer before delivery (128: the red zone); with bit 0 set, the stack's end instead. */
	__u64 stack_adjust;
	__u64 reserved[2];
};

struct heddle_uintr_target {
	__u32 receiver;
	__u32 vector;
	__u32 index; /* out: the operand of SENDUIPI, for each registered thread of the process */
	__u32 reserved;
};

/* heddle_uintr_timer.kind */
#define HEDDLE_UINTR_TIMER_OFF 0
/* The kernel's timer. While the thread has no CPU, it ticks once. */
#define HEDDLE_UINTR_TIMER_HR 1
/*
 * The CPU's own timer, delegated: no kernel code runs at a tick (Skyloft, section 3.2). The handler must post VECTOR to
 * itself again (SENDUIPI, which sends no interrupt as the receiver's are suppressed), or ticks end. What others send is
 * delivered at the next tick. The kernel has its timer back every few milliseconds and whenever the thread leaves the
 * CPU. On the CPU that sees to that (the module's parameter keeper), ticks are the kernel's. Needs CAP_SYS_ADMIN. Only
 * the thread itself ends it.
 */
#define HEDDLE_UINTR_TIMER_APIC 2

/* heddle_uintr_timer.flags */
#define HEDDLE_UINTR_TIMER_ONCE (1 << 0) /* HEDDLE_UINTR_TIMER_HR: one tick, PERIOD_NS from now */

struct heddle_uintr_timer {
	__u32 kind;
	__u32 flags;
	__u32 vector;
	__u32 receiver; /* of this process; HEDDLE_UINTR_NONE: the calling thread, as HEDDLE_UINTR_TIMER_APIC must be */
	__u64 period_ns;
};

#define HEDDLE_UINTR_MAGIC 0xb8

/* What there is and what happened. */
#define HEDDLE_UINTR_INFO _IOR(HEDDLE_UINTR_MAGIC, 0, struct heddle_uintr_info)
/*
 * Registers the calling thread. EBUSY: it is already, or the receiver's place is taken. EINVAL: the handler is no
 * address of a program. EAGAIN: a limit. ENOENT: no such receiver.
 */
#define HEDDLE_UINTR_REGISTER _IOWR(HEDDLE_UINTR_MAGIC, 1, struct heddle_uintr_register)
/*
 * Undoes that; what is pending is dropped. ENOENT: it is not registered. Targets that lead to it stay, and what is sent
 * to them is lost. Its number is free again once they are removed.
 */
#define HEDDLE_UINTR_UNREGISTER _IO(HEDDLE_UINTR_MAGIC, 2)
/* Adds a target; the same receiver and vector have the same index. ENOENT: no such receiver. ENOSPC: table full. */
#define HEDDLE_UINTR_CONNECT _IOWR(HEDDLE_UINTR_MAGIC, 3, struct heddle_uintr_target)
/* Removes the target INDEX: once the call returns, SENDUIPI with it ends in SIGSEGV. ENOENT: no such target. */
#define HEDDLE_UINTR_DISCONNECT _IOW(HEDDLE_UINTR_MAGIC, 4, __u32)
/* Sets the timer of a receiver. ENOENT: no such one. ERANGE: too short or long. EPERM, EBUSY: see kinds. */
#define HEDDLE_UINTR_TIMER _IOW(HEDDLE_UINTR_MAGIC, 5, struct heddle_uintr_timer)

#endif
