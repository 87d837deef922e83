/* An echo server whose threads share one event queue: any free thread serves a ready connection. No two threads ever
 * serve the same connection at once, and nothing needs rearming: there are no locks, and no per-thread lists of
 * connections.
 *
 * Usage: echo PORT THREADS; port 0 takes a free one. Prints `listening on PORT`, and ends when its input ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <heddle/client.h>
#include <heddle/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int queue, listener;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, hd_error());
	perror(what);
	exit(1);
}

static void watch(int fd)
{
	struct kevent change;

	EV_SET(&change, fd, EVFILT_READ, EV_ADD, 0, 0, NULL);
	if (heddle_kevent(queue, &change, 1, NULL, 0, NULL) < 0)
		close(fd);
}

static void echo(int fd)
{
	char buffer[4096];
	ssize_t n = read(fd, buffer, sizeof buffer);

	for (ssize_t at = 0, sent; at < n; at += sent)
		if ((sent = send(fd, buffer + at, n - at, MSG_NOSIGNAL)) <= 0)
			n = 0;
	/* The registration ends with the descriptor. */
	if (n <= 0)
		close(fd);
}

static void *work(void *unused)
{
	struct kevent events[16];
	int n;

	while ((n = heddle_kevent(queue, NULL, 0, events, 16, NULL)) >= 0 || errno == EINTR)
		for (int i = 0; i < n; i++) {
			if (events[i].ident != (uintptr_t)listener) {
				echo(events[i].ident);
				continue;
			}
			int fd = accept(listener, NULL, NULL);
			if (fd >= 0)
				watch(fd);
		}
	return unused; /* EBADF: the queue was closed */
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
	int count = argc > 2 ? atoi(argv[2]) : 4, on = 1;
	socklen_t size = sizeof at;
	pthread_t threads[64];
	char c;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&at, size) < 0 || listen(listener, 512) < 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &size) < 0)
		die("listen");
	if ((queue = heddle_kqueue()) < 0 || heddle_kqueue_policy(queue, "hybrid") < 0)
		die("queue");
	watch(listener);
	count = count < 1 ? 1 : count > 64 ? 64 : count;
	for (int i = 0; i < count; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL)) != 0)
			die("thread");
	printf("listening on %d\n", ntohs(at.sin_port));
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	heddle_kqueue_close(queue);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
