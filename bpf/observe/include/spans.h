/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the span programs share with user space; `crates/observe/src/spans/layout.rs` repeats it. Times are
 * nanoseconds of CLOCK_MONOTONIC. */
#ifndef HEDDLE_OBSERVE_SPANS_H
#define HEDDLE_OBSERVE_SPANS_H

#include "table.h"

#define OB_SOCKET_SETS 4096 /* of eight: sockets and datagrams in work at once */
#define OB_THREAD_SETS 2048 /* of eight: threads that read or answered */
#define OB_QUEUES 256       /* datagram sockets */
#define OB_DATAGRAMS 1024   /* that wait in one socket */
#define OB_SYSCALLS 512

/* Why a thread is off its CPU, by its system call. The first six are the fields of `Off`. */
enum ob_why {
	OB_FUTEX,
	OB_SLEEP,
	OB_READ,
	OB_WRITE,
	OB_FILE,
	OB_OTHER,
	OB_REASONS,
	OB_IDLE = OB_REASONS, /* it waits for any request: epoll, accept */
	OB_RUNNABLE,
};

#define OB_TCP 1
#define OB_UDP 2

/* One for all. 128 bytes. */
struct ob_control {
	__u64 on;         /* 0: the programs look at nothing else */
	__u64 restricted; /* whether only processes in `processes` count */
	__u64 lost;       /* requests for which the ring had no room */
	__u64 refused;    /* sockets and threads for which the tables had no room */
	__u64 unanswered; /* requests that were given up */
	__u64 requests;   /* begun */
	__u64 unknown;    /* requests whose arrival was not seen: not reported */
	__u64 switches;   /* of watched threads */
	__u64 spare[8];
};

#define OB_FIRST 1
#define OB_OVERLAPPED 2
#define OB_UNCONFIRMED 4
#define OB_PIPELINED 8

/* A request: what the ring carries. 152 bytes. */
struct ob_request {
	__u64 connection;
	__u64 queue;
	__u64 arrived;
	__u64 ready;
	__u64 received;
	__u64 answered; /* 0: not yet */
	__u64 cpu;
	__u64 run_queue;
	__u64 off[OB_REASONS];
	__u32 reader;
	__u32 writer;
	__u32 process;
	__u32 reads;
	__u32 writes;
	__u32 bytes_in;
	__u32 bytes_out;
	__u16 port;
	__u16 flags;
	__u64 wake_delay; /* how long its reader, woken for it, waited for a CPU */
};

enum ob_state {
	OB_CLOSED,  /* no request is in work */
	OB_OPEN,    /* `request` is */
	OB_IGNORED, /* one whose beginning was not seen */
};

/* A socket, or a datagram in work. 216 bytes. */
struct ob_socket {
	struct ob_request request;
	__u64 established; /* when the connection came, until its first request is read */
	__u64 ready;       /* when the first byte that is not read came; 0: all is read */
	__u64 last_ready;  /* when the last byte came */
	__u64 last_answered;
	__u64 sequence; /* the reader's count of requests */
	__u64 state;    /* enum ob_state */
	__u64 queue;    /* the number of its `ob_queue`, 0 for none */
	__u64 charged;  /* the sum of the request's times */
};

/* When the datagrams came that wait in a socket. */
struct ob_queue {
	__u64 pushed;
	__u64 popped;
	__u64 at[OB_DATAGRAMS];
};

/* A thread that reads or answers requests. 144 bytes. */
struct ob_thread {
	__u64 turn;   /* the key of the request that it works on, 0 for none */
	__u32 entry;  /* where that is in the table */
	__u16 handed; /* it woke a thread of its process meanwhile, which may have the turn now */
	__u16 idle;   /* it waited for any request meanwhile */
	__u64 mark;     /* since when the sums below count */
	__u64 on;       /* when it got its CPU, or the last time at which `cpu` was added to */
	__u64 off_at;   /* when it left its CPU, 0 once that is accounted for */
	__u64 delay;    /* the kernel's sum of its run-queue delay then */
	__u64 why;      /* enum ob_why */
	__u64 requests; /* read by it */
	__u64 cpu;
	__u64 run_queue;
	__u64 off[OB_REASONS];
	__u64 spare[2];
};

#endif
