/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Reads: where requests begin. */
#ifndef HEDDLE_OBSERVE_SPANS_READS_H
#define HEDDLE_OBSERVE_SPANS_READS_H

#include "turns.h"

/* A thread reads another request: ends its turn. `same` is the socket from which it reads. */
static __always_inline void end_turn(struct ob_thread *t, struct task_struct *p, struct ob_socket *same, __u64 now)
{
	struct ob_socket *s;

	add_up(t, p, now);
	s = turn_of(t);
	if (!s || s->request.answered)
		return;
	if (s == same || (!t->handed && !t->idle))
		charge(s, t, now);
}

static __always_inline void begin_request(struct ob_socket *s, struct ob_thread *t, struct task_struct *p,
					  struct sock *sk, __u64 now, __u32 bytes)
{
	struct ob_request *r = &s->request;

	__builtin_memset(r, 0, sizeof *r);
	r->received = now;
	r->reader = p->pid;
	r->process = p->tgid;
	r->reads = 1;
	r->bytes_in = bytes;
	r->port = sk->__sk_common.skc_num;
	/* What was not charged to the turn before it is since its answer. */
	r->wake_delay = t->run_queue;
	s->sequence = ++t->requests;
	s->charged = 0;
	s->state = OB_OPEN;
}

static __always_inline __u64 unread_bytes(struct sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp ? tcp->rcv_nxt - tcp->copied_seq : 0;
}

static __always_inline int read_stream(struct sock *sk, struct task_struct *p, struct ob_control *c, __u32 bytes)
{
	__u64 cookie = cookie_of(sk), now = bpf_ktime_get_ns(), ready;
	__u32 entry = get_socket(cookie, c);
	struct ob_thread *t = get_thread(p->pid, c);
	struct ob_socket *s = entry == OB_NONE ? NULL : socket_at(entry);
	bool more, known;

	if (!s || !t)
		return 0;
	end_turn(t, p, s, now);
	ready = s->ready;
	known = s->last_ready;
	s->ready = unread_bytes(sk) ? s->last_ready : 0;
	more = s->state == OB_OPEN && !s->request.answered;
	if (more) {
		s->request.reads++;
		s->request.bytes_in += bytes;
	} else {
		ADD(c->requests, 1);
		report(s, c);
		begin_request(s, t, p, sk, now, bytes);
		if (!known) {
			ADD(c->unknown, 1);
			s->state = OB_IGNORED;
		}
		s->request.connection = cookie;
		s->request.ready = s->request.arrived = ready && ready < now ? ready : now;
		if (s->established) {
			s->request.arrived = s->established;
			s->request.flags |= OB_FIRST;
			s->established = 0;
		}
		if (s->last_answered > s->request.ready)
			s->request.flags |= OB_OVERLAPPED | OB_PIPELINED;
	}
	begin_turn(t, cookie, entry, now);
	return 0;
}

static __always_inline __u32 waiting_datagrams(struct sock *sk)
{
	__u32 moved = 0;

	bpf_probe_read_kernel(&moved, sizeof moved, &((struct udp_sock *)sk)->reader_queue.qlen);
	return sk->sk_receive_queue.qlen + moved;
}

/* Returns the arrivals of a datagram socket. At first, those of the datagrams that wait already are unknown (0);
 * `own` is how many of them the caller knows. */
static __always_inline struct ob_queue *queue_of(struct ob_socket *s, struct sock *sk, __u32 own,
						 struct ob_control *c)
{
	__u32 at = s->queue, zero = 0, waiting;
	struct ob_queue *q;

	if (at)
		return bpf_map_lookup_elem(&queues, &at);
	q = bpf_map_lookup_elem(&queues, &zero);
	if (!q)
		return NULL;
	at = ADD(q->pushed, 1) + 1;
	q = bpf_map_lookup_elem(&queues, &at);
	if (!q) {
		ADD(c->refused, 1);
		return NULL;
	}
	s->queue = at;
	waiting = waiting_datagrams(sk);
	q->popped = 0;
	q->pushed = waiting > own ? waiting - own : 0;
	for (__u32 i = 0; i < OB_DATAGRAMS; i++)
		q->at[i] = 0;
	return q;
}

/* Returns when the oldest datagram came, which was just read; 0 if that is unknown. */
static __always_inline __u64 pop_arrival(struct ob_queue *q, struct sock *sk, __u64 now)
{
	__u64 number = ADD(q->popped, 1), pushed = ACCESS(q->pushed), at;

	if (number >= pushed)
		return now; /* read on another CPU before it was announced */
	at = pushed - number > OB_DATAGRAMS ? 0 : q->at[number & (OB_DATAGRAMS - 1)];
	/* Datagrams that were announced and never read (a wrong checksum) must not shift all others. */
	if (!waiting_datagrams(sk) && number + 1 < pushed) {
		at = q->at[(pushed - 1) & (OB_DATAGRAMS - 1)];
		ACCESS(q->popped) = pushed;
	}
	return at;
}

static __noinline int read_datagram(struct sock *sk, struct task_struct *p, struct ob_control *c, __u32 bytes)
{
	__u64 cookie = cookie_of(sk), now = bpf_ktime_get_ns(), key = datagram_key(cookie, p->pid), at = now;
	__u32 own = get_socket(cookie, c), entry;
	struct ob_thread *t = get_thread(p->pid, c);
	struct ob_socket *s = own == OB_NONE ? NULL : socket_at(own), *d;
	struct ob_queue *q;

	if (!s || !t)
		return 0;
	q = queue_of(s, sk, 0, c);
	if (q)
		at = pop_arrival(q, sk, now);
	entry = get_socket(key, c);
	d = entry == OB_NONE ? NULL : socket_at(entry);
	if (!d)
		return 0;
	end_turn(t, p, d, now);
	ADD(c->requests, 1);
	report(d, c);
	begin_request(d, t, p, sk, now, bytes);
	if (!at) {
		ADD(c->unknown, 1);
		d->state = OB_IGNORED;
	}
	d->request.queue = cookie;
	d->request.connection = sk->__sk_common.skc_dport ? cookie : 0;
	d->request.ready = d->request.arrived = at;
	begin_turn(t, key, entry, now);
	return 0;
}

#endif
