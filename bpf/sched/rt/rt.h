/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the real-time backend adds to layout.h: its maps, and the word that holds a thread's state and sequence
 * number. */
#ifndef HEDDLE_SCHED_RT_H
#define HEDDLE_SCHED_RT_H

#include "bpf.h"
#include "layout.h"

/* A thread's state, as far as this backend can vouch for it, its commitment and its sequence number are one word,
 * so that a commit is one compare-and-swap: it cannot rest on an old message.
 *
 *   bits 0-3    enum rt_live
 *   bits 4-19   the CPU it is committed to, plus one
 *   bits 20-63  its sequence number
 *
 * HD_PARKED, HD_LATCHED and HD_ONCPU are all RT_RUNNABLE here: not committed; committed and elsewhere; committed
 * and on that CPU. */
enum rt_live {
	RT_GONE,     /* free if tid is 0; otherwise its agent has not read of its end yet */
	RT_BLOCKED,
	RT_RUNNABLE,
};

/* This backend's use of hd_enclave.spare. */
#define RT_REFUSED 0 /* children without a slot */
#define RT_CPUS 1    /* the number of possible CPUs: all CPU numbers are below it */

#define RT_COMMITTED 0xffff0ULL
#define RT_SEQ_SHIFT 20

/* 64 bytes. */
struct rt_thread {
	__u64 live;
	__u64 since;      /* when it got its present CPU; 0: on none */
	__u64 committed;  /* when user space committed it; user space writes it */
	__u32 running;    /* the CPU that it is on, plus one */
	__u32 changing;   /* user space is changing its policy or mask, so the change is not another program's */
	__u32 policy;     /* the kernel's policy that user space set, plus one; 0: none yet */
	__s32 nice;       /* the last value seen */
	__u32 old_policy; /* the original policy with SCHED_RESET_ON_FORK, and priority */
	__u32 old_priority;
	__u64 began;      /* start time in the kernel's ticks, as in /proc; 0: not read yet */
};

/* A call of the system-call program by user space. 64 bytes. */
struct rt_call {
	__u32 operation;
	__u32 slot; /* RT_ADMIT: the answer */
	__u32 tid;
	__u32 tgid;
	__u32 kind; /* RT_REPORT: of the message; 0: none */
	__u32 from; /* RT_REPORT: the states from which to change, as bits */
	__u32 to;
	__u32 committed; /* RT_REPORT: only if committed to this CPU, plus one; RT_ANY: in any case. Ends the commitment */
	__u64 info; /* RT_RENUMBER: the thread's start time */
	__u32 old_policy;
	__u32 old_priority;
	__s32 nice;
	__u32 worked;
	__u64 spare;
};

enum { RT_ADMIT, RT_REPORT, RT_LEAVE, RT_RENUMBER };
#define RT_ANY 0xffffffff

#define RT_TRIES 64  /* slots where a thread may be, from the one that its number hashes to */
#define RT_RACES 16 /* how often a compare-and-swap is retried against user space, which commits once per decision */

/* One enclave per object, in word 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hd_enclave);
} enclave SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_THREADS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hd_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_THREADS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rt_thread);
} lives SEC(".maps");

/* The CPUs that the program wants for its threads, and those that user space has set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_THREADS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hd_affinity);
} wanted SEC(".maps"), placed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hd_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_QUEUES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hd_queue);
} queues SEC(".maps");

/* Slots by thread number. Preallocated, because it is written with a run queue's lock held. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HD_THREADS);
	__type(key, __u32);
	__type(value, __u32);
} tids SEC(".maps");

struct rt_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, HD_QUEUES);
	__type(key, __u32);
	__array(values, struct rt_ring);
} rings SEC(".maps");

#endif
