/* Requests in streams: the policy chooses which worker's socket gets a request. */
#include "stream.h"

#define SK_DROP 0
#define SK_PASS 1
#define INGRESS 1
#define AF_INET6 10

static long (*const store_bytes)(void *ctx, u32 offset, const void *from, u32 size, u64 flags) = (void *)9;
static u64 (*const cookie_of)(void *ctx) = (void *)46;
static long (*const redirect)(void *ctx, void *map, u32 key, u64 flags) = (void *)52;

/* The most requests that wait for a worker beside its receive buffer. The kernel has no bound of its own and
 * charges them to no process, so a hung worker would use up all memory. */
#define BACKLOG 1024

extern u32 hd_backlog(u32 k);

HD_OWN_MAP(hd_executor, HD_KIND_SOCKETS, 4, 4, HD_FEW);

HD_SECTION("main") int hd_main(struct stream *ctx)
{
	struct hd_in *in = hd_blank();
	u32 at = number_at(ctx, framing.place), length = number_at(ctx, framing.message);
	u64 cookie = cookie_of(ctx);

	if (!in)
		return SK_PASS;
	in->hash = hd_mix(cookie);
	in->protocol = 6;
	in->family = ctx->family == AF_INET6 ? 6 : 4;
	in->source_port = __builtin_bswap32(ctx->remote_port);
	in->destination_port = ctx->local_port;
	in->length = length > framing.header ? length - framing.header : 0;
	u32 seen = HD_MIN(in->length, HD_WINDOW);
	if (seen > 0 && seen <= HD_WINDOW && !load_bytes(ctx, at + framing.header, in->window, seen))
		in->seen = seen;

	u32 choice = hd_decide(in);
	if (choice == HD_DROP)
		return SK_DROP;
	if (choice == HD_PASS)
		return SK_PASS;
	/* The tag overwrites whatever the client wrote there: a worker trusts it. */
	if (hd_backlog(choice) >= BACKLOG ||
	    (framing.tagged && store_bytes(ctx, at + framing.tag_offset, &cookie, sizeof cookie, 0))) {
		hd_enforced(choice, 0);
		return SK_DROP;
	}
	int worked = redirect(ctx, &hd_executor, choice, INGRESS) == SK_PASS;
	hd_enforced(choice, worked);
	return SK_PASS;
}
