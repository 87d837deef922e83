/* Agents in C (libheddle): your program decides which kernel thread runs on which CPU.
 * docs/agents/policies.md is the guide; examples/agent-fifo-c is an agent.
 *
 *     uint32_t cpus[] = {2, 3};
 *     hd_enclave *enclave = hd_enclave_create("mine", "auto", cpus, 2);
 *     if (!enclave || hd_enclave_attach(enclave) < 0 || hd_enclave_join_process(enclave, pid) < 0)
 *         fprintf(stderr, "%s\n", hd_error());
 *     for (;;) {
 *         struct hd_message message;
 *         while (hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) > 0)
 *             ...;                                  // which threads can run
 *         hd_enclave_commit(enclave, txns, n, 0);   // which threads shall run
 *         hd_enclave_wait(enclave, HD_DEFAULT_QUEUE, 0);
 *     }
 *
 * Link with -lheddle. Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_NICE. Errors and hd_error() are as in
 * client.h; EBUSY also if another agent is attached. Several threads may use an enclave, but only one at a
 * time each queue. CPUs are numbered as by the operating system; times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef HEDDLE_AGENT_H
#define HEDDLE_AGENT_H

#include <stdint.h>

#include "client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of thread slots; slots are below it. */
#define HD_THREADS 16384

enum hd_state {
	HD_FREE,    /* the slot is not in use */
	HD_BLOCKED, /* asleep in the kernel */
	HD_PARKED,  /* runnable, waiting for a commit */
	HD_LATCHED, /* committed to a CPU and not there yet */
	HD_ONCPU,   /* running */
};

/* The state of a thread (ghOSt, section 3.1). Fields that are not for agents are 0. */
struct hd_thread {
	uint32_t tid;
	uint32_t tgid;
	uint32_t state;       /* enum hd_state */
	uint32_t cpu;         /* where it runs, is latched, or ran last */
	uint64_t tseq;        /* incremented with every message of the thread */
	uint64_t on_at;       /* when it got its CPU */
	uint64_t runtime;     /* on CPUs in total, without the current stretch */
	uint64_t runnable_at; /* since when it has been runnable without a CPU */
	uint32_t enclave;
	uint32_t queue; /* where its messages go */
	uint32_t weight; /* the kernel's, 1 to 10000; 100 is nice 0 */
	uint32_t consumed; /* low half of the sequence number that its agent has last read; written by user space */
};

enum hd_occupant {
	HD_IDLE,     /* no thread */
	HD_MANAGED,  /* a thread of the CPU's enclave */
	HD_ORDINARY, /* a thread of the default scheduler */
	HD_REALTIME, /* a thread of a higher class */
	HD_AGENT,    /* an agent */
};

/* The state of a CPU. Fields that are not for agents are 0. */
struct hd_cpu {
	uint32_t enclave; /* 0: none */
	uint32_t occupant; /* enum hd_occupant */
	uint32_t current; /* slot + 1 of the managed thread that runs here */
	uint32_t latched; /* slot + 1 of the thread that is committed and not here yet */
	uint64_t since;   /* of the last change of occupant or current */
	uint32_t queue;   /* where messages about the CPU go */
	uint32_t online;
	uint32_t agent; /* tid of the agent that is pinned here */
	uint32_t handoff; /* another task wants this CPU while the agent spins on it; incremented each time */
	uint64_t claim;   /* the commit that currently decides which thread is latched here, 0 for none */
	uint64_t ticks;
	uint32_t node; /* NUMA node, for the fast path */
	uint32_t spare;
};

enum hd_message_kind {
	HD_THREAD_CREATED = 1, /* info: 1 if it is runnable */
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

/* What happened (ghOSt, Table 1). */
struct hd_message {
	uint32_t kind; /* enum hd_message_kind */
	uint32_t slot; /* for a thread's message */
	uint32_t tid;
	uint32_t cpu;
	uint64_t tseq;
	uint64_t aseq;
	uint64_t at;
	uint64_t info;
};

enum hd_result {
	HD_OPEN,      /* not committed yet */
	HD_COMMITTED,
	HD_STALE,        /* a newer message of the thread exists (ESTALE) */
	HD_AGENT_STALE,  /* a newer message of the agent's queue exists (ESTALE) */
	HD_NO_THREAD,    /* no such thread, or its slot was reused (ESRCH) */
	HD_NOT_RUNNABLE, /* it is asleep */
	HD_ON_CPU,       /* it is running or latched already */
	HD_AFFINITY,     /* it may not run on that CPU (EPERM) */
	HD_AGAIN,        /* it was just being moved: retry */
	HD_CPU_TAKEN,    /* a task above managed threads has the CPU, and the transaction asks not to wait */
	HD_CPU_OFFLINE,
	HD_NOT_YOURS,    /* the CPU or the thread does not belong to the agent's enclave */
	HD_POISONED,     /* another transaction of an all-or-nothing group failed */
	HD_INVALID,      /* no such CPU or slot */
};

#define HD_TXN_PREEMPT 1   /* take the CPU from the managed thread that has it */
#define HD_TXN_CHECK_TSEQ 2
#define HD_TXN_CHECK_ASEQ 4
#define HD_TXN_DIRECT 8    /* directly to the CPU: faster, no recall */
#define HD_TXN_ONLY_FREE 16 /* fail with HD_CPU_TAKEN rather than wait behind an ordinary thread */
#define HD_TXN_BEST_EFFORT 32 /* over rt: an ordinary thread while it has the CPU, not a real-time one */

/* "Run this thread on that CPU" (ghOSt, section 3.2). Zero it, then set slot, tid (from messages), cpu and
 * flags; with HD_TXN_CHECK_TSEQ also tseq, the number of the thread's last message; with HD_TXN_CHECK_ASEQ
 * also aseq and queue. */
struct hd_txn {
	uint32_t slot;
	uint32_t tid; /* detects that the slot was reused */
	uint32_t cpu;
	uint32_t flags; /* HD_TXN_* */
	uint64_t tseq;
	uint64_t aseq;
	uint64_t slice; /* nanoseconds that it may run before the kernel parks it; 0: until the agent decides otherwise */
	uint32_t result; /* enum hd_result */
	uint32_t queue;  /* the queue of aseq */
};

/* An enclave: some CPUs, and the threads that were added to it. */
typedef struct hd_enclave hd_enclave;

/* The queue that every enclave has. */
#define HD_DEFAULT_QUEUE 0xffffffffu

/* Creates an enclave of `count` CPUs that no other enclave has. `backend` is "scx" (sched_ext), "rt"
 * (real-time priorities: weaker, see docs/design/agent.md) or "auto". The calling process is its guardian:
 * when it closes the enclave or exits, the threads return to the default scheduler. A signal that kills it
 * leaves them as they are under "rt"; hd_enclave_undo repairs that. */
hd_enclave *hd_enclave_create(const char *name, const char *backend, const uint32_t *cpus, uint32_t count);

/* The same with a `pick_next` (heddle/pick_next.h): a file, or the name of one that Heddle ships, with parameters after
 * a colon. It decides which of the offered threads (hd_enclave_offer) a CPU takes. EOPNOTSUPP if the backend is not
 * "scx"; EINVAL if it is not accepted: hd_error() says where and why. */
hd_enclave *hd_enclave_create_picking(const char *name, const char *backend, const uint32_t *cpus, uint32_t count,
				      const char *pick_next);

/* Opens an enclave that another process has created, to be its agent. */
hd_enclave *hd_enclave_open(const char *name);

/* Detaches, and removes the enclave if it was created here. It must not be used any more. NULL is ignored. */
void hd_enclave_close(hd_enclave *enclave);

/* Removes what a killed process has left of an enclave, and returns its threads to the default scheduler.
 * Returns how many. Fails if the process is alive. */
int hd_enclave_undo(const char *name);

/* Makes the calling process the agent; or detaches it, for a successor. */
int hd_enclave_attach(hd_enclave *enclave);
int hd_enclave_detach(hd_enclave *enclave);

/* Adds a thread, or all threads of a process, and returns how many were added. Threads that they create
 * follow. Only in the process that created the enclave. */
int hd_enclave_join(hd_enclave *enclave, uint32_t tid);
int hd_enclave_join_process(hd_enclave *enclave, uint32_t pid);

/* Writes up to `most` of the enclave's CPUs. Returns how many there are. */
int hd_enclave_cpus(const hd_enclave *enclave, uint32_t *cpus, uint32_t most);

/* Writes up to `most` of its threads' slots, for an agent that starts or has lost messages. Returns how many
 * there are. */
int hd_enclave_threads(const hd_enclave *enclave, uint32_t *slots, uint32_t most);

/* Takes the oldest unread message. Returns 1, or 0 if there is none. Makes no system call. */
int hd_enclave_next(hd_enclave *enclave, uint32_t queue, struct hd_message *message);

/* Returns how many messages were dropped for lack of room. When it grows, read hd_enclave_threads and their
 * states again. */
uint64_t hd_enclave_lost(const hd_enclave *enclave, uint32_t queue);

/* Sleeps until `queue` has a message, or until `until` (0: no limit). May return spuriously. */
int hd_enclave_wait(hd_enclave *enclave, uint32_t queue, uint64_t until);

/* Read the current state. Make no system call. ENOENT: no such thread or CPU in this enclave. */
int hd_enclave_thread(const hd_enclave *enclave, uint32_t slot, struct hd_thread *word);
int hd_enclave_cpu(const hd_enclave *enclave, uint32_t cpu, struct hd_cpu *word);

/* Returns the current time. */
uint64_t hd_enclave_now(const hd_enclave *enclave);

/* All or nothing (ghOSt, section 4.5); EOPNOTSUPP if the backend does not support it. */
#define HD_GROUP_ALL 1

/* Carries out `count` transactions, each on its own or as `flags` says, and sets their results. Returns how
 * many succeeded. */
int hd_enclave_commit(hd_enclave *enclave, struct hd_txn *txns, uint32_t count, uint32_t flags);

/* Takes back a commit whose thread has not reached `cpu` yet. Returns 1, or 0 if there is none. */
int hd_enclave_recall(hd_enclave *enclave, uint32_t cpu);

/* Takes `cpu` from the thread of the enclave that runs on it. Returns 1, or 0 if none does. */
int hd_enclave_preempt(hd_enclave *enclave, uint32_t cpu);

#define HD_OFFER_OWN_CPU 1 /* only `cpu` itself may take the thread */

/* Lets a CPU take a parked thread without its agent (ghOSt, section 3.2: the fast path). When a CPU of the NUMA node
 * of `cpu` has nothing else to run, it takes the thread that was offered first and may run there, and sends
 * HD_THREAD_TAKEN. `tseq` is the number of the thread's last message. Returns 1, or 0 if that is not its last or it is
 * not parked. EOPNOTSUPP: the backend cannot do this. An offered thread cannot be committed until it is revoked. */
int hd_enclave_offer(hd_enclave *enclave, uint32_t slot, uint64_t tseq, uint32_t cpu, uint32_t flags);

/* Says of a thread, before it is offered, what a `pick_next` sees: its class (0: latency-critical, 1: best-effort, to
 * 255) and any number. */
int hd_enclave_describe(hd_enclave *enclave, uint32_t slot, uint32_t class_number, uint64_t hint);

/* Parks an offered thread again. Returns 1, or 0 if a CPU has taken it or it is not offered any more. */
int hd_enclave_revoke(hd_enclave *enclave, uint32_t slot);

/* Creates another message queue and stores its number. With `wakes` 0, messages do not wake who waits on it, for an
 * agent that polls. Give each local agent a queue (ghOSt, section 3.2). */
int hd_enclave_queue_create(hd_enclave *enclave, int wakes, uint32_t *queue);

/* Changes whether messages wake who waits on `queue`. ENOENT: no such queue. */
int hd_enclave_queue_configure(hd_enclave *enclave, uint32_t queue, int wakes);

/* Destroys a queue. EBUSY while a thread's messages go there. */
int hd_enclave_queue_destroy(hd_enclave *enclave, uint32_t queue);

/* Sends the messages of a thread, or those about a CPU, to `queue` from now on. For a thread EBUSY while a message of
 * it is unread: read the queue and try again. */
int hd_enclave_associate(hd_enclave *enclave, uint32_t slot, uint32_t queue);
int hd_enclave_associate_cpu(hd_enclave *enclave, uint32_t cpu, uint32_t queue);

/* A simulated enclave of CPUs 0 to cpus - 1, to test an agent without a kernel. The calls below control its
 * threads: hd_model_spawn returns the new thread's slot; the others return 1, or 0 if the thread's state does
 * not permit the action. */
hd_enclave *hd_enclave_model(uint32_t cpus);
int hd_model_spawn(hd_enclave *enclave, int runnable);
int hd_model_block(hd_enclave *enclave, uint32_t slot);
int hd_model_wake(hd_enclave *enclave, uint32_t slot);
int hd_model_exit(hd_enclave *enclave, uint32_t slot);

#ifdef __cplusplus
}
#endif

#endif
