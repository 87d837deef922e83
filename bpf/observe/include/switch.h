/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the program at every switch shares with user space; `crates/observe/src/switches/layout.rs` repeats it. Times
 * are nanoseconds of CLOCK_MONOTONIC. */
#ifndef HEDDLE_OBSERVE_SWITCH_H
#define HEDDLE_OBSERVE_SWITCH_H

#include "table.h"

#define OB_GROUPS 16 /* of processes; 0: all that are in no other */
#define OB_BUCKETS 496
#define OB_USE_SETS 4096 /* of eight: threads whose use of CPUs is added up */
#define OB_TURNS 8       /* remembered of each CPU */
#define OB_PIDS 64       /* in an `ob_pids` */

/* What the program does beside counting: bits of ob_switch_control.flags. */
#define OB_RECORD 1  /* one event of each switch, into the CPU's ring */
#define OB_THREADS 2 /* adds up each thread's use of CPUs */
#define OB_BURSTS 4  /* and reports a sample of its bursts */

/* One for all. 64 bytes. */
struct ob_switch_control {
	__u64 flags;
	__u64 bursts_lost;
	__u64 refused; /* threads for which the table had no room */
	__u64 spare[5];
};

/* One of each CPU. 64 bytes. */
struct ob_cpu_counts {
	__u64 switches;
	__u64 lost; /* events for which the ring had no room */
	__u64 spare[6];
};

/* Times in buckets: below 8 each value has one, above 8 each power of two. */
struct ob_times {
	__u64 count[OB_BUCKETS];
};
struct ob_group {
	struct ob_times delay; /* in the run queue */
	struct ob_times burst; /* on the CPU */
};

/* The layout of heddle_core::Event. */
struct ob_event {
	__u64 at;
	__u32 who; /* the thread that got the CPU, 0 for none */
	__u32 by;  /* the thread that left it */
	__u64 request; /* how long `by` had waited in the run queue before its turn, which ends here */
	__u32 arg;     /* OB_PREEMPTED, and the state of `by` */
	__u16 cpu;
	__u8 kind;
	__u8 layer;
};
#define OB_PREEMPTED 0x80000000u
#define OB_START 3
#define OB_KERNEL 2

/* A burst: from a wakeup to the next sleep. 32 bytes. */
struct ob_burst {
	__u64 number; /* of the thread's bursts, from 0 */
	__u64 slept;
	__u64 ran;
	__u32 tid;
	__u32 process;
};

/* What a thread used. 128 bytes. */
struct ob_use {
	__u32 tid;
	__u32 process;
	char name[16];
	__u64 cpu;
	__u64 run_queue;
	__u64 switches;
	__u64 preempted;
	__u64 delayed; /* how long threads of a group waited on a CPU while this ran on it */
	__u64 cpus;    /* on which it ran, numbers modulo 64 */
	__u64 bursts;
	__u64 ran;      /* in the present burst */
	__u64 slept;    /* before it */
	__u64 asleep_at; /* since when it sleeps; 0: it does not, or that is unknown */
	__u64 ended;
	__u64 awake;    /* whether the beginning of the present burst was seen */
	__u64 spare;
};

#endif
