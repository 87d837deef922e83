/* Socket Select: the policy chooses which socket of a reuseport group gets a datagram or a connection. */
#include "reuseport.h"

#define ETH_P_IPV6 0x86dd
#define UDP 17

static long (*const load_bytes)(const void *ctx, u32 offset, void *to, u32 size) = (void *)26;
static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;

/* reuseport_gone.c: a separate program, because it reads kernel memory, while a policy is verified by the rules for
 * programs that may not. */
HD_OWN_MAP(hd_gone, HD_KIND_PROGRAMS, 4, 4, 1);

/* Copies the window word by word from the packet's first part, in place, which costs less than the helper. Returns
 * whether that were all of its `seen` bytes. */
HD_INLINE int copy_in_place(struct hd_in *in, u32 seen, const void *from, const void *end)
{
	u64 *to = (u64 *)in->window;
	u32 copied = 0;

	if (seen % sizeof *to)
		return 0;
#pragma clang loop unroll(full)
	for (u32 i = 0; i < HD_WINDOW / sizeof *to; i++) {
		const u64 *at = (const u64 *)from + i;
		if ((void *)(at + 1) > end)
			break;
		to[i] = *at;
		copied = (i + 1) * sizeof *to;
	}
	return copied >= seen;
}

HD_SECTION("main") int hd_main(struct sk_reuseport_md *ctx)
{
#ifdef HD_NO_PAYLOAD
	struct hd_in *in = hd_at(hd_inputs, 0);
#else
	struct hd_in *in = hd_blank();
#endif
	u16 ports[2] = {};

	if (!in)
		return SK_PASS;
	/* `data` is at the transport header. A connection is placed when its SYN comes: there is no payload. */
	u32 header = ctx->ip_protocol == UDP ? 8 : ctx->len;

	in->hash = ctx->hash;
	in->protocol = ctx->ip_protocol;
	in->family = (u16)ctx->eth_protocol == __builtin_bswap16(ETH_P_IPV6) ? 6 : 4;
	/* Read in place if the packet's first part holds them, which costs less than the helper. */
	void *data = (void *)ctx->data;
	if (data + sizeof ports <= (void *)ctx->data_end) {
		__builtin_memcpy(ports, data, sizeof ports);
		in->source_port = __builtin_bswap16(ports[0]);
		in->destination_port = __builtin_bswap16(ports[1]);
	} else {
		/* Zeroes if it fails. */
		load_bytes(ctx, 0, ports, sizeof ports);
		in->source_port = __builtin_bswap16(ports[0]);
		in->destination_port = __builtin_bswap16(ports[1]);
	}
	in->length = ctx->len > header ? ctx->len - header : 0;
#ifndef HD_NO_PAYLOAD
	u32 seen = HD_MIN(in->length, HD_WINDOW);
	if (seen > 0 && seen <= HD_WINDOW &&
	    (copy_in_place(in, seen, data + 8, (void *)ctx->data_end) || !load_bytes(ctx, header, in->window, seen)))
		in->seen = seen;
#endif

	u32 choice = hd_decide(in);
	if (choice == HD_DROP)
		return SK_DROP;
	if (choice == HD_PASS)
		return SK_PASS;
	if (select_socket(ctx, &hd_executor, &choice, 0) == 0) {
		hd_enforced(choice, 1);
		return SK_PASS;
	}
	struct hd_choice *gone = hd_at(hd_choice, 0);
	if (gone) {
		*gone = (struct hd_choice){.executor = choice};
		tail_call(ctx, &hd_gone, 0);
	}
	/* An empty slot: there is no program to call. */
	hd_enforced(choice, 0);
	return SK_PASS;
}
