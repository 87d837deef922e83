/* Agents in C (libheddle): which thread of the kernel runs on which CPU, decided by your program. docs/agents/policies.md has
 * the whole; examples/agent-fifo-c is an agent.
 *
 *     uint32_t cpus[] = {2, 3};
 *     hd_enclave *enclave = hd_enclave_create("mine", "auto", cpus, 2);
 *     if (!enclave || hd_enclave_attach(enclave) < 0 || hd_enclave_join_process(enclave, pid) < 0)
 *         fprintf(stderr, "%s\n", hd_error());
 *     for (;;) {
 *         struct hd_message message;
 *         while (hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) > 0)
 *             ...;                                  // who could run, who cannot
 *         hd_enclave_commit(enclave, txns, n, 0);   // who shall
 *         hd_enclave_wait(enclave, HD_DEFAULT_QUEUE, 0);
 *     }
 *
 * Link with -lheddle; it takes root, or CAP_BPF, CAP_PERFMON and CAP_SYS_NICE. Failures and hd_error() are as in client.h; EBUSY
 * also where another agent is attached. An enclave may be used by several threads, each queue by one at a time. Slots, CPUs
 * and times are as in the structures: CPUs are the operating system's, times nanoseconds of CLOCK_MONOTONIC. */
#ifndef HEDDLE_AGENT_H
#define HEDDLE_AGENT_H

#include <stdint.h>

#include "client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many slots of threads there are: slots are below it. */
#define HD_THREADS 16384

enum hd_state {
	HD_FREE,    /* the slot is nobody's */
	HD_BLOCKED, /* asleep in the kernel */
	HD_PARKED,  /* could run, and waits for a commit */
	HD_LATCHED, /* committed to a CPU and not there yet */
	HD_ONCPU,   /* runs */
};

/* What is so of a thread (ghOSt, section 3.1). Fields that are not for agents are 0. */
struct hd_thread {
	uint32_t tid;
	uint32_t tgid;
	uint32_t state;       /* enum hd_state */
	uint32_t cpu;         /* where it runs, is latched, or ran last */
	uint64_t tseq;        /* grows with every message of the thread */
	uint64_t on_at;       /* when it got its CPU */
	uint64_t runtime;     /* on CPUs in all, without the present stretch */
	uint64_t runnable_at; /* since when it could run and had no CPU */
	uint32_t enclave;
	uint32_t queue; /* where its messages go */
	uint32_t weight; /* the kernel's, 1 to 10000; 100 is nice 0 */
	uint32_t consumed; /* low half of the sequence number that its agent has read last; user space writes it */
};

enum hd_occupant {
	HD_IDLE,     /* nobody */
	HD_MANAGED,  /* a thread of the CPU's enclave */
	HD_ORDINARY, /* a thread of the default scheduler */
	HD_REALTIME, /* a thread above it */
	HD_AGENT,    /* an agent */
};

/* What is so of a CPU. Fields that are not for agents are 0. */
struct hd_cpu {
	uint32_t enclave; /* 0: of none */
	uint32_t occupant; /* enum hd_occupant */
	uint32_t current; /* slot + 1 of the managed thread that runs here */
	uint32_t latched; /* slot + 1 of the thread that is committed and not here yet */
	uint64_t since;   /* of the last change of occupant or current */
	uint32_t queue;   /* where messages about the CPU go */
	uint32_t online;
	uint32_t agent; /* tid of the agent that is pinned here */
	uint32_t handoff; /* somebody else wants this CPU while the agent spins on it: grows with each such moment */
	uint64_t claim;   /* the commit that decides now who is latched here, 0 for none */
	uint64_t ticks;
	uint32_t node; /* NUMA node, for the fast path */
	uint32_t spare;
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
	HD_TIMER_TICK,
	HD_CPU_AVAILABLE,
	HD_CPU_BUSY,
};

/* What happened (ghOSt, Table 1). */
struct hd_message {
	uint32_t kind; /* enum hd_message_kind */
	uint32_t slot; /* of a thread's message */
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
	HD_NO_THREAD,    /* no such thread, or it is another's by now (ESRCH) */
	HD_NOT_RUNNABLE, /* it sleeps */
	HD_ON_CPU,       /* it runs already, or is latched */
	HD_AFFINITY,     /* it may not run on that CPU (EPERM) */
	HD_AGAIN,        /* it was just being moved: try again */
	HD_CPU_TAKEN,    /* somebody above managed threads has the CPU, and the transaction asks not to wait */
	HD_CPU_OFFLINE,
	HD_NOT_YOURS,    /* the CPU or the thread is not of the agent's enclave */
	HD_POISONED,     /* another transaction of an all-or-nothing group failed */
	HD_INVALID,      /* no such CPU or slot */
};

#define HD_TXN_PREEMPT 1   /* take the CPU from the managed thread that has it */
#define HD_TXN_CHECK_TSEQ 2
#define HD_TXN_CHECK_ASEQ 4
#define HD_TXN_DIRECT 8    /* straight to the CPU: faster, no recall */
#define HD_TXN_ONLY_FREE 16 /* fail with HD_CPU_TAKEN rather than wait behind an ordinary thread */
#define HD_TXN_BEST_EFFORT 32 /* over rt: an ordinary thread while it has the CPU, not a real-time one */

/* "Run this thread on that CPU" (ghOSt, section 3.2). Zero it, then set slot, tid (as messages say), cpu and flags; tseq, the
 * number of the thread's last message, with HD_TXN_CHECK_TSEQ; aseq and queue with HD_TXN_CHECK_ASEQ. */
struct hd_txn {
	uint32_t slot;
	uint32_t tid; /* to notice that the slot has become another's */
	uint32_t cpu;
	uint32_t flags; /* HD_TXN_* */
	uint64_t tseq;
	uint64_t aseq;
	uint64_t slice; /* nanoseconds that it may run before the kernel parks it; 0: until the agent says so */
	uint32_t result; /* enum hd_result */
	uint32_t queue;  /* of which aseq is */
};

/* An enclave: some CPUs, and the threads that were put in. */
typedef struct hd_enclave hd_enclave;

/* The queue that an enclave is made with. */
#define HD_DEFAULT_QUEUE 0xffffffffu

/* Makes an enclave of `count` CPUs that no other has. `backend` is "scx" (sched_ext), "rt" (real-time priorities: weaker, see
 * docs/design/agent.md) or "auto". The calling process is its guardian: when it closes the enclave or ends, the threads are the default
 * scheduler's again. A signal that ends it leaves them as they are under "rt": hd_enclave_undo puts that right. */
hd_enclave *hd_enclave_create(const char *name, const char *backend, const uint32_t *cpus, uint32_t count);

/* Opens one that another process has made, to be its agent. */
hd_enclave *hd_enclave_open(const char *name);

/* Detaches, and removes the enclave if it was created here. Nobody may use it any more. NULL is none. */
void hd_enclave_close(hd_enclave *enclave);

/* Removes what a process that was killed has left of an enclave, and gives its threads back: how many. Not for one that is alive. */
int hd_enclave_undo(const char *name);

/* The calling process is the agent from now on; or leaves, for a successor. */
int hd_enclave_attach(hd_enclave *enclave);
int hd_enclave_detach(hd_enclave *enclave);

/* Puts a thread in, or all threads of a process: how many came. Theirs follow. Where the enclave was created only. */
int hd_enclave_join(hd_enclave *enclave, uint32_t tid);
int hd_enclave_join_process(hd_enclave *enclave, uint32_t pid);

/* The enclave's CPUs: writes `most` numbers at most; how many there are. */
int hd_enclave_cpus(const hd_enclave *enclave, uint32_t *cpus, uint32_t most);

/* The slots of its threads, for an agent that starts or has lost messages: writes `most` at most; how many there are. */
int hd_enclave_threads(const hd_enclave *enclave, uint32_t *slots, uint32_t most);

/* The oldest message that was not read: 1, or 0 if there is none. No system call. */
int hd_enclave_next(hd_enclave *enclave, uint32_t queue, struct hd_message *message);

/* Messages for which there was no room. When it grows, read hd_enclave_threads and their words anew. */
uint64_t hd_enclave_lost(const hd_enclave *enclave, uint32_t queue);

/* Sleeps until `queue` has a message, or `until` (0: for as long as it takes). May return for no reason. */
int hd_enclave_wait(hd_enclave *enclave, uint32_t queue, uint64_t until);

/* What is so now. No system call. ENOENT: no such thread or CPU in this enclave. */
int hd_enclave_thread(const hd_enclave *enclave, uint32_t slot, struct hd_thread *word);
int hd_enclave_cpu(const hd_enclave *enclave, uint32_t cpu, struct hd_cpu *word);

/* The time. */
uint64_t hd_enclave_now(const hd_enclave *enclave);

/* All or none (ghOSt, section 4.5); EOPNOTSUPP where the backend cannot. */
#define HD_GROUP_ALL 1

/* Carries out `count` transactions, each for itself or as `flags` says, and sets their results: how many succeeded. */
int hd_enclave_commit(hd_enclave *enclave, struct hd_txn *txns, uint32_t count, uint32_t flags);

/* Takes back a commit whose thread has not reached `cpu` yet: 1, or 0 if there is none. */
int hd_enclave_recall(hd_enclave *enclave, uint32_t cpu);

/* Takes `cpu` from the thread of the enclave that runs on it: 1, or 0 if none does. */
int hd_enclave_preempt(hd_enclave *enclave, uint32_t cpu);

/* A simulated enclave of CPUs 0 to cpus - 1, to test an agent without a kernel. Its threads do what the calls below say: a new
 * one's slot; the others give 1, or 0 where the thread is not in a state for it. */
hd_enclave *hd_enclave_model(uint32_t cpus);
int hd_model_spawn(hd_enclave *enclave, int runnable);
int hd_model_block(hd_enclave *enclave, uint32_t slot);
int hd_model_wake(hd_enclave *enclave, uint32_t slot);
int hd_model_exit(hd_enclave *enclave, uint32_t slot);

#ifdef __cplusplus
}
#endif

#endif
