/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Requests of unmodified servers, found at their sockets.
 *
 * A request begins when a thread reads from a watched socket whose last request is answered, and is answered by each
 * write until then. It is reported at the next request, when the server closes, or by user space at the end of a
 * window, which finds it in the table.
 *
 * A thread has a turn: the request that it works on. What it does between two marks (a read, a write) is added to the
 * turn's request while that is not answered. A thread that sleeps where it would wait for any request (epoll) keeps its
 * turn, but what follows counts only if it answers that request next. A thread that wakes another of its process from a
 * futex, or by a pipe or an eventfd, passes its turn on: the thread that answers had it. */
#include "spans/calls.h"
#include "spans/reads.h"

/* Whether the process is watched, if not all are. */
static __always_inline bool counts(struct ob_control *c, struct task_struct *p)
{
	__u32 process = p->tgid;

	return !c->restricted || bpf_map_lookup_elem(&processes, &process);
}

SEC("tp_btf/sock_recv_length")
int spans_recv(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 bytes = ctx[1], flags = ctx[2];
	struct task_struct *p;
	__u32 kind;

	if (!c || !c->on || bytes <= 0 || flags & MSG_PEEK)
		return 0;
	kind = watched(sk);
	if (!kind)
		return 0;
	p = bpf_get_current_task_btf();
	if (!counts(c, p))
		return 0;
	return kind == OB_TCP ? read_stream(sk, p, c, bytes) : read_datagram(sk, p, c, bytes);
}

/* Returns the entry of the request that a write to `sk` answers, and its key. */
static __always_inline __u32 answered_entry(struct sock *sk, struct ob_thread *t, __u32 kind, __u64 *key)
{
	struct ob_socket *s;

	*key = cookie_of(sk);
	if (kind == OB_TCP)
		return find_socket(*key);
	s = turn_of(t);
	if (s && s->request.queue == *key) {
		*key = t->turn;
		return t->entry;
	}
	*key = datagram_key(*key, bpf_get_current_pid_tgid());
	return find_socket(*key);
}

SEC("tp_btf/sock_send_length")
int spans_send(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 bytes = ctx[1];
	struct task_struct *p;
	struct ob_socket *s, *turn;
	struct ob_thread *t;
	__u64 now, key;
	__u32 kind, entry;

	if (!c || !c->on || bytes <= 0)
		return 0;
	kind = watched(sk);
	if (!kind)
		return 0;
	p = bpf_get_current_task_btf();
	if (!counts(c, p))
		return 0;
	t = get_thread(p->pid, c);
	if (!t)
		return 0;
	entry = answered_entry(sk, t, kind, &key);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s || s->state == OB_CLOSED)
		return 0;
	now = bpf_ktime_get_ns();
	if (s->state == OB_IGNORED) {
		s->request.answered = now;
		return 0;
	}
	add_up(t, p, now);
	turn = turn_of(t);
	if (turn == s)
		charge(s, t, now);
	else if (turn && !turn->request.answered && !t->handed && !t->idle)
		charge(turn, t, now);
	else
		charge_since(s, t, now);
	if (s->request.reader == p->pid) {
		if (t->requests != s->sequence)
			s->request.flags |= OB_OVERLAPPED;
	} else if (turn != s) {
		s->request.flags |= OB_UNCONFIRMED;
	}
	s->request.writer = p->pid;
	s->request.writes++;
	s->request.bytes_out += bytes;
	s->request.answered = now;
	begin_turn(t, key, entry, now);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int spans_ready(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	struct ob_socket *s;
	struct ob_queue *q;
	__u32 kind, entry;
	__u64 now, number;

	if (!c || !c->on)
		return 0;
	kind = watched(sk);
	if (!kind || sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	entry = get_socket(cookie_of(sk), c);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	if (kind == OB_TCP) {
		if (!s->ready)
			s->ready = now;
		s->last_ready = now;
		return 0;
	}
	q = queue_of(s, sk, 1, c);
	if (!q)
		return 0;
	number = ACCESS(q->pushed);
	q->at[number & (OB_DATAGRAMS - 1)] = now;
	ADD(q->pushed, 1);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int spans_state(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 to = ctx[2];
	struct ob_socket *s;
	__u64 cookie;
	__u32 entry;

	if (!c || !c->on)
		return 0;
	if (to == TCP_ESTABLISHED) {
		if (watched(sk) != OB_TCP)
			return 0;
		entry = get_socket(cookie_of(sk), c);
		s = entry == OB_NONE ? NULL : socket_at(entry);
		if (s)
			s->established = bpf_ktime_get_ns();
		return 0;
	}
	if (to != TCP_FIN_WAIT1 && to != TCP_LAST_ACK && to != TCP_CLOSE)
		return 0;
	/* The port may be 0 by now. */
	cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie)
		return 0;
	entry = find_socket(cookie);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s)
		return 0;
	if (to == TCP_CLOSE || s->request.answered)
		report(s, c);
	if (to == TCP_CLOSE)
		ob_free(&socket_keys, entry);
	return 0;
}

static __always_inline void leave_cpu(struct ob_thread *t, struct task_struct *p, bool runnable, __u64 now)
{
	struct ob_socket *s;

	add_up(t, p, now);
	t->off_at = now;
	t->delay = p->sched_info.run_delay;
	t->why = runnable ? OB_RUNNABLE : reason_of(p);
	if (t->why != OB_IDLE || t->idle)
		return;
	s = turn_of(t);
	if (s && !s->request.answered && !t->handed)
		charge(s, t, now);
	t->idle = 1;
}

static __always_inline void free_thread(__u32 tid)
{
	__u32 entry = ob_find(&thread_keys, OB_THREAD_SETS, tid);

	if (entry != OB_NONE)
		ob_free(&thread_keys, entry);
}

SEC("tp_btf/sched_switch")
int spans_switch(__u64 *ctx)
{
	struct ob_control *c = the_control();
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u32 state = ctx[3];
	struct ob_thread *t;
	__u64 now = 0;

	if (!c || !c->on)
		return 0;
	t = find_thread(prev->pid);
	if (t && prev->pid) {
		if (state & TASK_DEAD)
			free_thread(prev->pid);
		else if (t->turn)
			leave_cpu(t, prev, preempted || !state, now = bpf_ktime_get_ns());
	}
	t = find_thread(next->pid);
	if (t && next->pid && t->turn) {
		t->on = now ? now : bpf_ktime_get_ns();
		/* What follows a wait for any request counts from here. */
		if (t->off_at && t->why == OB_IDLE)
			t->mark = t->on;
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int spans_waking(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct task_struct *p = (void *)ctx[0], *waker;
	struct ob_socket *s, *own;
	struct ob_thread *t, *w;
	__u64 now;

	if (!c || !c->on)
		return 0;
	waker = bpf_get_current_task_btf();
	if (waker->tgid != p->tgid || waker->pid == p->pid)
		return 0;
	t = find_thread(waker->pid);
	if (!t || !t->turn || t->idle)
		return 0;
	s = turn_of(t);
	if (!s || s->request.answered || !passes_on(waker, p))
		return 0;
	w = get_thread(p->pid, c);
	if (!w)
		return 0;
	/* A lock that it waits for in the middle of its own request. */
	own = turn_of(w);
	if (own && !own->request.answered && !w->idle && !w->handed)
		return 0;
	now = bpf_ktime_get_ns();
	add_up(t, waker, now);
	charge(s, t, now);
	t->handed = 1;
	begin_turn(w, t->turn, t->entry, now);
	w->off_at = now;
	w->why = OB_RUNNABLE;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
