/* Schedules the requests of a TCP connection to two workers. Prints "fine". Runs as root. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle.h>

#include "check.h"

/* [length: 4][cookie: 8][payload: 4] */
struct message {
	uint32_t length;
	char cookie[8];
	char payload[4];
} __attribute__((packed));

static void ask(int client, const char *payload)
{
	struct message message = {.length = htonl(4)};

	memcpy(message.payload, payload, sizeof message.payload);
	CHECK(send(client, &message, sizeof message, 0) == sizeof message);
}

/* Receives the request from the worker that has it. */
static void expect(const int *workers, const char *payload, uint64_t cookie)
{
	struct pollfd ready[2] = {{.fd = workers[0], .events = POLLIN}, {.fd = workers[1], .events = POLLIN}};
	struct message message;
	size_t size = 0;

	CHECK(poll(ready, 2, -1) == 1);
	int worker = workers[ready[0].revents ? 0 : 1];
	while (size < sizeof message) {
		ssize_t more = recv(worker, (char *)&message + size, sizeof message - size, 0);
		CHECK(more > 0 || (more < 0 && (errno == EAGAIN || errno == EINTR)));
		size += more > 0 ? more : 0;
	}
	CHECK(!memcmp(message.payload, payload, sizeof message.payload));
	CHECK(!memcmp(message.cookie, &cookie, sizeof cookie));
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof at;
	struct hd_framing framing = {.length_size = 4, .header = 12, .tag = 4}, wrong = {.length_size = 3};
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int workers[2];
	uint64_t cookie = 0;

	alarm(120);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&at, &size));
	CHECK(!connect(client, (struct sockaddr *)&at, sizeof at));
	int connection = accept(listener, NULL, NULL);
	CHECK(connection >= 0);

	CHECK(!hd_stream_open("round-robin", NULL) && !hd_stream_open(NULL, &framing));
	CHECK(!hd_stream_open("chance", &framing) && strstr(hd_error(), "chance"));
	CHECK(!hd_stream_open("round-robin", &wrong));
	CHECK(!hd_stream_open("sita:chance=1", &framing) && strstr(hd_error(), "no parameter"));
	CHECK(hd_stream_worker(NULL, workers) == -EINVAL && hd_stream_replace(NULL, "hash") == -EINVAL);
	hd_stream *stream = hd_stream_open("round-robin", &framing);
	CHECK(stream);
	CHECK(hd_stream_worker(stream, NULL) == -EINVAL);
	for (int k = 0; k < 2; k++)
		CHECK(hd_stream_worker(stream, &workers[k]) == k);
	CHECK(hd_stream_connection(stream, -1, NULL) == -EINVAL);
	CHECK(hd_stream_connection(stream, connection, &cookie) == 0 && cookie);
	/* Whole, tagged, and at one worker each. */
	ask(client, "one.");
	expect(workers, "one.", cookie);
	ask(client, "two.");
	expect(workers, "two.", cookie);

	CHECK(hd_stream_replace(stream, "chance") == -ENOENT);
	CHECK(hd_stream_replace(stream, "hash") == 0);
	ask(client, "last");
	expect(workers, "last", cookie);
	hd_stream_close(stream);
	hd_stream_close(NULL);
	puts("fine");
	return 0;
}
