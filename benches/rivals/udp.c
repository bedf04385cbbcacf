/* UDP sockets of 127.0.0.1 alone, between two processes that poll, pinned to the first two CPUs that this one may use:
 * what software RDMA over UDP is held against. Prints one line of JSON.
 *
 *   rivals-udp ping-pong BYTES               ns one way, by sendto and recvfrom; connected_ns by send and recv of sockets
 *                                            that are connected
 *   rivals-udp stream SEGMENT_BYTES          bytes_per_s that arrive: sendmmsg with GSO, recvmmsg of segments; gro_bytes_per_s
 *                                            with GRO at the receiver
 *
 * The sender of a stream reads in shared memory how much has arrived, and is never more than WINDOW ahead: nothing is lost.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define REPEATS 9
#define TRIPS 10000
#define WINDOW_NS 60000000ull
#define BUFFER (4 << 20)
/* The most bytes of one sendmsg's segments, as ours. */
#define RUN_BYTES 65000
/* Messages of one sendmmsg and of one recvmmsg. */
#define SENT 4
#define RECEIVED 32
#define WINDOW (1u << 20)

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of REPEATS runs, after one that does not count. */
static double repeated(double (*run)(void *), void *arg)
{
	double all[REPEATS];
	run(arg);
	for (int i = 0; i < REPEATS; i++)
		all[i] = run(arg);
	qsort(all, REPEATS, sizeof(all[0]), by_value);
	return all[REPEATS / 2];
}

/* Pins the process to the first or the second CPU that it may use. */
static void pin(int which)
{
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || which--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			die("sched_setaffinity");
		return;
	}
	fprintf(stderr, "two CPUs are needed\n");
	exit(1);
}

/* Both ends: a socket each, and the other's address. */
struct ends {
	int near, far;
	struct sockaddr_in to_near, to_far;
};

static int open_socket(struct sockaddr_in *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), buffer = BUFFER;
	socklen_t len = sizeof(*name);
	*name = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	if (fd < 0 || bind(fd, (struct sockaddr *)name, len) || getsockname(fd, (struct sockaddr *)name, &len))
		die("a UDP socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	return fd;
}

static struct ends open_ends(void)
{
	struct ends ends;
	ends.near = open_socket(&ends.to_near);
	ends.far = open_socket(&ends.to_far);
	return ends;
}

/* The CPUs that this process had when it began. */
static cpu_set_t had;

/* The other process: it ends with this one. Gives its number here, and 0 there; each is pinned to a CPU of its own. */
static pid_t other(void)
{
	if (sched_setaffinity(0, sizeof(had), &had))
		die("sched_setaffinity");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(pid == 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- one at a time -------------------------------------------------------- */

struct exchange {
	int fd;
	/* NULL: the socket is connected. */
	struct sockaddr_in *to;
	size_t bytes;
	char data[65536];
};

static void send_one(struct exchange *x)
{
	ssize_t sent = x->to ? sendto(x->fd, x->data, x->bytes, MSG_DONTWAIT, (struct sockaddr *)x->to, sizeof(*x->to)) :
			       send(x->fd, x->data, x->bytes, MSG_DONTWAIT);
	if (sent != (ssize_t)x->bytes)
		die("send");
}

static void receive_one(struct exchange *x)
{
	struct sockaddr_in from;
	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t got = x->to ? recvfrom(x->fd, x->data, sizeof(x->data), MSG_DONTWAIT, (struct sockaddr *)&from, &len) :
				      recv(x->fd, x->data, sizeof(x->data), MSG_DONTWAIT);
		if (got == (ssize_t)x->bytes)
			return;
		if (got >= 0 || errno != EAGAIN)
			die("recv");
	}
}

static double trips(void *arg)
{
	uint64_t began = now_ns();
	for (int i = 0; i < TRIPS; i++) {
		send_one(arg);
		receive_one(arg);
	}
	return (double)(now_ns() - began) / (2.0 * TRIPS);
}

static double ping_pong(size_t bytes, bool connected)
{
	static struct exchange x;
	struct ends ends = open_ends();
	pid_t pid;
	if (connected && (connect(ends.near, (struct sockaddr *)&ends.to_far, sizeof(ends.to_far)) ||
			  connect(ends.far, (struct sockaddr *)&ends.to_near, sizeof(ends.to_near))))
		die("connect");
	pid = other();
	x.bytes = bytes;
	x.fd = pid ? ends.near : ends.far;
	x.to = connected ? NULL : pid ? &ends.to_far : &ends.to_near;
	while (!pid) {
		receive_one(&x);
		send_one(&x);
	}
	double ns = repeated(trips, &x);
	end(pid);
	close(ends.near);
	close(ends.far);
	return ns;
}

/* --- as much as goes ------------------------------------------------------ */

struct stream {
	struct ends ends;
	size_t segment, run;
	uint64_t sent;
	/* In shared memory. */
	uint64_t *arrived;
	char *data;
};

/* Receives until it is killed. */
static _Noreturn void receive_all(struct stream *s, bool gro)
{
	size_t room = gro ? 65536 : s->segment;
	struct mmsghdr messages[RECEIVED] = { 0 };
	struct iovec vectors[RECEIVED];
	int one = 1;
	if (gro && setsockopt(s->ends.far, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)))
		die("UDP_GRO");
	for (int i = 0; i < RECEIVED; i++) {
		vectors[i] = (struct iovec){ malloc(room), room };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1 };
	}
	for (;;) {
		uint64_t bytes = 0;
		int count = recvmmsg(s->ends.far, messages, RECEIVED, MSG_DONTWAIT, NULL);
		if (count < 0 && errno != EAGAIN)
			die("recvmmsg");
		for (int i = 0; i < count; i++)
			bytes += messages[i].msg_len;
		if (bytes)
			__atomic_fetch_add(s->arrived, bytes, __ATOMIC_RELEASE);
	}
}

static void send_some(struct stream *s)
{
	struct mmsghdr messages[SENT];
	struct iovec vector = { s->data, s->run };
	char control[CMSG_SPACE(sizeof(uint16_t))] = { 0 };
	for (int i = 0; i < SENT; i++) {
		messages[i] = (struct mmsghdr){ .msg_hdr = {
						    .msg_name = &s->ends.to_far,
						    .msg_namelen = sizeof(s->ends.to_far),
						    .msg_iov = &vector,
						    .msg_iovlen = 1,
						    .msg_control = control,
						    .msg_controllen = sizeof(control),
						} };
	}
	struct cmsghdr *header = CMSG_FIRSTHDR(&messages[0].msg_hdr);
	header->cmsg_level = IPPROTO_UDP;
	header->cmsg_type = UDP_SEGMENT;
	header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
	uint16_t segment = (uint16_t)s->segment;
	memcpy(CMSG_DATA(header), &segment, sizeof(segment));
	int count = sendmmsg(s->ends.near, messages, SENT, MSG_DONTWAIT);
	if (count < 0 && errno != EAGAIN)
		die("sendmmsg");
	if (count > 0)
		s->sent += (uint64_t)count * s->run;
}

static double window(void *arg)
{
	struct stream *s = arg;
	uint64_t began = now_ns(), before = __atomic_load_n(s->arrived, __ATOMIC_ACQUIRE), now;
	do {
		if (s->sent - __atomic_load_n(s->arrived, __ATOMIC_ACQUIRE) + SENT * s->run <= WINDOW)
			send_some(s);
		now = now_ns();
	} while (now - began < WINDOW_NS);
	return (double)(__atomic_load_n(s->arrived, __ATOMIC_ACQUIRE) - before) * 1e9 / (double)(now - began);
}

static double stream(size_t segment, bool gro)
{
	struct stream s = { .ends = open_ends(), .segment = segment, .run = RUN_BYTES / segment * segment };
	s.arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.arrived == MAP_FAILED)
		die("mmap");
	s.data = calloc(1, s.run);
	pid_t pid = other();
	if (!pid)
		receive_all(&s, gro);
	double bytes_per_s = repeated(window, &s);
	end(pid);
	return bytes_per_s;
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	if (sched_getaffinity(0, sizeof(had), &had))
		die("sched_getaffinity");
	if (bytes > 0 && bytes <= RUN_BYTES && !strcmp(argv[1], "ping-pong")) {
		double ns = ping_pong(bytes, false), connected_ns = ping_pong(bytes, true);
		printf("{\"ns\":%.1f,\"connected_ns\":%.1f}\n", ns, connected_ns);
		return 0;
	}
	if (bytes > 0 && bytes <= RUN_BYTES && !strcmp(argv[1], "stream")) {
		double plain = stream(bytes, false), gro = stream(bytes, true);
		printf("{\"bytes_per_s\":%.0f,\"gro_bytes_per_s\":%.0f}\n", plain, gro);
		return 0;
	}
	fprintf(stderr, "usage: rivals-udp ping-pong BYTES | stream SEGMENT_BYTES\n");
	return 2;
}
