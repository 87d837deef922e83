/* What the kernel's programs of the agents share with user space: status words and messages. Every field has an
 * explicit size and offset, which `crates/agent/src/model/layout.rs` repeats and its tests compare.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. CPUs are the operating system's numbers. Slots start at 0; a word that
 * holds "a slot or none" holds the slot plus one, or 0 for none. */
#ifndef HEDDLE_SCHED_LAYOUT_H
#define HEDDLE_SCHED_LAYOUT_H

#define HD_THREADS 16384 /* threads that can be managed at once, all enclaves together */
#define HD_CPUS 1024
#define HD_ENCLAVES 16 /* enclave 0 is "none" */
#define HD_QUEUES 1024
#define HD_TXNS 1024 /* the most transactions of a commit */
/* sched_ext's maximum wait of a thread; after that it ends the scheduler of all enclaves. */
#define HD_KERNELS_PATIENCE_MS 30000

enum hd_state {
	HD_FREE,    /* the slot is not in use */
	HD_BLOCKED, /* asleep in the kernel */
	HD_PARKED,  /* runnable, waiting for a commit */
	HD_LATCHED, /* committed to a CPU that it has not reached yet */
	HD_ONCPU,   /* runs */
};

/* In hd_thread.state: parked, and held by an all-or-nothing group that is being committed. Agents see HD_PARKED. */
#define HD_STAGED 5

/* The status word of a thread (ghOSt, section 3.1): the truth, whose changes messages announce. 64 bytes. */
struct hd_thread {
	__u32 tid;
	__u32 tgid;
	__u32 state;       /* enum hd_state */
	__u32 cpu;         /* where it runs, is latched, or ran last */
	__u64 tseq;        /* grows with every message of the thread */
	__u64 on_at;       /* when it got its CPU */
	__u64 runtime;     /* its total time on CPUs, without the present stretch */
	__u64 runnable_at; /* when its last wait for a CPU began */
	__u32 enclave;
	__u32 queue; /* where its messages go */
	__u32 weight; /* the kernel's, 1 to 10000; 100 is nice 0 */
	__u32 consumed; /* low half of the last sequence number that its agent has read; user space writes it */
};

/* The CPUs on which a thread may run. 128 bytes a slot. */
struct hd_affinity {
	__u64 cpus[HD_CPUS / 64];
};

/* What an agent says of a thread to a pick_next; user space writes it. 16 bytes. */
struct hd_hint {
	__u64 hint;
	__u32 class;
	__u32 spare;
};

enum hd_occupant {
	HD_IDLE,     /* nothing */
	HD_MANAGED,  /* a thread of the CPU's enclave */
	HD_ORDINARY, /* a thread of the default scheduler */
	HD_REALTIME, /* a thread above it */
	HD_AGENT,    /* an agent */
};

/* The status word of a CPU. 64 bytes. */
struct hd_cpu {
	__u32 enclave; /* 0: none */
	__u32 occupant; /* enum hd_occupant */
	__u32 current; /* slot + 1 of the managed thread that runs here */
	__u32 latched; /* slot + 1 of the thread that is committed but not here yet */
	__u64 since;   /* the time of the last change of occupant or current */
	__u32 queue;   /* where messages about the CPU go */
	__u32 online;
	__u32 agent; /* tid of the agent that is pinned here */
	__u32 handoff; /* how often another thread wanted this CPU while the agent spun on it */
	__u64 claim;   /* the commit that may change what is latched here, 0 for none */
	__u64 ticks;
	__u32 node; /* NUMA node, for the fast path */
	__u32 spare;
};

enum hd_enclave_state {
	HD_ENCLAVE_FREE,
	HD_ENCLAVE_WAITING, /* just made, or between two agents: threads stay parked until `deadline` */
	HD_ENCLAVE_ACTIVE,  /* an agent is attached */
	HD_ENCLAVE_ORPHAN,  /* its agent is gone: threads run first in, first out until they are given back */
};

/* The status word of an enclave. 128 bytes. */
struct hd_enclave {
	__u32 state; /* enum hd_enclave_state */
	__u32 agent;    /* process of the agent that is attached, 0 for none */
	__u32 guardian; /* process of the guardian */
	__u32 queue;    /* default queue of its threads */
	__u64 patience;  /* how long a runnable thread may wait before the agent counts as hung; 0: forever */
	__u64 grace;     /* how long the enclave waits for a new agent */
	__u64 deadline;  /* the end of that wait */
	__u64 generation; /* grows with each agent that is attached */
	__u64 committed; /* transactions */
	__u64 failed;
	__u64 threads;   /* managed now */
	__u64 flags;     /* HD_FLAG_* */
	__u64 orphaned;  /* when it became an orphan */
	union {
		struct {
			__u64 picked;    /* offered threads that CPUs took because its pick_next said so */
			__u64 declined;  /* times that its pick_next left a CPU to the agent */
			__u64 misjudged; /* wrong answers of its pick_next */
		};
		__u64 spare[5]; /* over rt: see rt.h */
	};
};

#define HD_FLAG_TICKS 1     /* TIMER_TICK messages wanted */
#define HD_FLAG_CPU_MESSAGES 2 /* CPU_AVAILABLE and CPU_BUSY messages wanted */
#define HD_FLAG_PICKS 4     /* it has a pick_next */

/* The status word of a queue. 64 bytes. */
struct hd_queue {
	__u32 enclave; /* 0: free */
	__u32 wakeup;  /* 1: a message wakes the waiting reader; 0: the reader polls */
	__u64 aseq;    /* grows with every message to this queue, before it is there */
	__u64 lost;    /* messages for which there was no room */
	__u64 associated; /* threads whose messages go here */
	__u64 spare[4];
};

enum hd_message_kind {
	HD_THREAD_CREATED = 1, /* info: 1 if it can run */
	HD_THREAD_BLOCKED,
	HD_THREAD_PREEMPTED, /* info: 1 if it was latched and had not run yet */
	HD_THREAD_YIELD,
	HD_THREAD_DEAD,
	HD_THREAD_WAKEUP,
	HD_THREAD_AFFINITY,
	HD_THREAD_PRIORITY, /* info: the new weight */
	HD_THREAD_DEPARTED, /* it left for another scheduler */
	HD_THREAD_TAKEN, /* it was offered, and runs on a CPU that took it without its agent */
	HD_TIMER_TICK,
	HD_CPU_AVAILABLE,
	HD_CPU_BUSY,
};

/* A message (ghOSt, Table 1). 48 bytes. */
struct hd_message {
	__u32 kind; /* enum hd_message_kind */
	__u32 slot; /* of a thread's message */
	__u32 tid;
	__u32 cpu;
	__u64 tseq;
	__u64 aseq;
	__u64 at;
	__u64 info;
};

/* The outcome of a transaction: ghOSt's codes in the words of this project. */
enum hd_result {
	HD_OPEN,      /* not committed yet */
	HD_COMMITTED,
	HD_STALE,        /* a newer message of the thread exists (ESTALE) */
	HD_AGENT_STALE,  /* a newer message of the agent's queue exists (ESTALE) */
	HD_NO_THREAD,    /* no such thread, or its slot was reused (ESRCH) */
	HD_NOT_RUNNABLE, /* it sleeps */
	HD_ON_CPU,       /* it runs already, or is latched */
	HD_AFFINITY,     /* it may not run on that CPU (EPERM) */
	HD_AGAIN,        /* it was just being moved: try again */
	HD_CPU_TAKEN,    /* something above managed threads has the CPU, and the transaction asks not to wait */
	HD_CPU_OFFLINE,
	HD_NOT_YOURS,    /* the CPU or the thread belongs to another enclave */
	HD_POISONED,     /* another transaction of an all-or-nothing group failed */
	HD_INVALID,      /* no such CPU or slot */
};

#define HD_TXN_PREEMPT 1   /* take the CPU from the managed thread that has it */
#define HD_TXN_CHECK_TSEQ 2
#define HD_TXN_CHECK_ASEQ 4
#define HD_TXN_DIRECT 8    /* straight to the CPU: faster, no recall */
#define HD_TXN_ONLY_FREE 16 /* fail with HD_CPU_TAKEN rather than wait behind an ordinary thread */
#define HD_TXN_BEST_EFFORT 32 /* over rt: an ordinary thread while it has the CPU, not a real-time one */

/* A transaction (ghOSt, section 3.2). 48 bytes. */
struct hd_txn {
	__u32 slot;
	__u32 tid; /* to notice a reused slot */
	__u32 cpu;
	__u32 flags; /* HD_TXN_* */
	__u64 tseq;
	__u64 aseq;
	__u64 slice; /* nanoseconds that it may run before the kernel parks it; 0: until the agent decides */
	__u32 result; /* enum hd_result */
	__u32 queue;  /* the queue of aseq */
};

/* The argument of the system-call programs. 32 bytes. The caller must be the agent of the enclave. */
struct hd_call {
	__u32 enclave;
	__u32 operation; /* enum hd_operation, of `hd_control` */
	__u32 first;     /* commit: the first transaction; else see enum hd_operation */
	__u32 count;     /* commit: how many */
	__u64 value;  /* commit of a group, in tests: the step that is to fail, from 1; 0 for none */
	__s64 result; /* commit: how many succeeded; else 0 or more, or a negative error number */
};

enum hd_operation {
	HD_RECALL,    /* first: CPU. Result: slot + 1 of the recalled thread, 0 for none */
	HD_PREEMPT,   /* first: CPU. Result: 1 if a managed thread runs there */
	HD_ASSOCIATE, /* first: slot, count: queue */
	HD_OFFER,     /* first: slot, count: a CPU, whose node's CPUs may take it, or with HD_OWN_CPU it alone; value: the
		       * thread's sequence number */
	HD_REVOKE,    /* first: slot. Result: 1 if no CPU had taken it */
};

#define HD_SOMEWHERE 0x80000000u /* in hd_thread.cpu while latched: offered to the node in the lower bits */
#define HD_OWN_CPU 0x40000000u   /* with it: to the CPU in the lower bits */

/* An enclave's name, up to its first zero. User space only. */
struct hd_name {
	char text[64];
};

/* The state of all enclaves together. 64 bytes. */
struct hd_machine {
	__u64 layout;    /* the version of this file */
	__u64 slots;     /* the number ever used: higher ones are free */
	__u64 no_slot;   /* threads that opted in and found no slot */
	__u64 unmanaged; /* threads that opted in without an enclave */
	__u64 groups;    /* all-or-nothing groups so far */
	__u64 exit_code; /* the kernel's enum scx_exit_kind if it has ended the scheduler; 0: it has not */
	__u64 spare[2];
};

/* The kernel's reason for ending the scheduler, NUL-terminated. Written before hd_machine.exit_code. 256 bytes. */
struct hd_last_words {
	char reason[64];
	char details[192];
};

#endif
