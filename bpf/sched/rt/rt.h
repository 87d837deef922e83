/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the real-time backend has beyond layout.h: its maps and how a thread's state and sequence number are one word. */
#ifndef HEDDLE_SCHED_RT_H
#define HEDDLE_SCHED_RT_H

#include "bpf.h"
#include "layout.h"

/* The state of a thread that this backend can vouch for, its commitment and its sequence number are one word, so that a commit
 * is one compare-and-swap: it cannot rest on old news.
 *
 *   bits 0-3    enum rt_live
 *   bits 4-19   the CPU it is committed to, plus one
 *   bits 20-63  its sequence number
 *
 * HD_PARKED, HD_LATCHED and HD_ONCPU all are RT_RUNNABLE here: not committed; committed and elsewhere; committed and on that CPU. */
enum rt_live {
	RT_GONE,     /* free if tid is 0, else waiting until its agent has read of its end */
	RT_BLOCKED,
	RT_RUNNABLE,
};

/* What this backend keeps in hd_enclave.spare. */
#define RT_REFUSED 0 /* children for which there was no slot */
#define RT_CPUS 1    /* how many CPUs there can be: the numbers of all are below it */

#define RT_COMMITTED 0xffff0ULL
#define RT_SEQ_SHIFT 20

/* 64 bytes. */
struct rt_thread {
	__u64 live;
	__u64 since;      /* on a CPU since then; 0: on none */
	__u64 committed;  /* when user space committed it; user space writes it */
	__u32 running;    /* the CPU that it is on, plus one */
	__u32 changing;   /* user space is changing its policy or mask just now: no conclusions */
	__u32 policy;     /* the kernel's policy that user space gave it, plus one; 0: none yet */
	__s32 nice;       /* as seen last */
	__u32 old_policy; /* what it had before it came: policy with SCHED_RESET_ON_FORK, and priority */
	__u32 old_priority;
	__u64 began;      /* in the kernel's ticks, of /proc; 0: nobody has looked yet */
};

/* What user space asks of the system-call program. 64 bytes. */
struct rt_call {
	__u32 operation;
	__u32 slot; /* RT_ADMIT: the answer */
	__u32 tid;
	__u32 tgid;
	__u32 kind; /* RT_TELL: of the message; 0: none */
	__u32 from; /* RT_TELL: states from which, as bits */
	__u32 to;
	__u32 committed; /* RT_TELL: only if committed to this CPU plus one; RT_ANY: whatever it is. It is not any more, then */
	__u64 info; /* RT_RENUMBER: when the thread began */
	__u32 old_policy;
	__u32 old_priority;
	__s32 nice;
	__u32 worked;
	__u64 spare;
};

enum { RT_ADMIT, RT_TELL, RT_LEAVE, RT_RENUMBER };
#define RT_ANY 0xffffffff

#define RT_TRIES 64  /* places where a thread's slot may be, from the one that its number says */
#define RT_RACES 16 /* how often a compare-and-swap is tried against user space, which commits once a decision */

/* One enclave an object: word 0 is its. */
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

/* Where the program wants its threads, and where user space has put them. */
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

/* Slots by thread number. Filled beforehand, because it is written with a run queue's lock held. */
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
