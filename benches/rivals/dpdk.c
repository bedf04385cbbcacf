/* DPDK's mempool, mbuf pool and ring, measured with the loops of its own mempool_perf_autotest and ring_perf_autotest
 * (app/test/test_mempool_perf.c, app/test/test_ring_perf.c), at the same sizes as ours. Prints one line of JSON.
 *
 *   rivals-dpdk EAL-OPTIONS -- mempool | ring
 *
 * mempool: ns an object got and put in bulks of 32 through a cache of RTE_MEMPOOL_CACHE_MAX_SIZE; fresh_ns the same of
 *          an mbuf, which is made ready for data. ring: ns an item, bulks of 32, SP/SC, the mean of both sides.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#define BULK 32
#define REPEATS 9
#define ROUNDS 100000
#define RING_SIZE 4096
#define BULKS (1u << 17)

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of REPEATS runs, after one that does not count. */
static double repeated(double (*run)(void *), void *arg)
{
	double ns[REPEATS];
	run(arg);
	for (int i = 0; i < REPEATS; i++)
		ns[i] = run(arg);
	qsort(ns, REPEATS, sizeof(ns[0]), by_value);
	return ns[REPEATS / 2];
}

static double to_ns(uint64_t cycles)
{
	return (double)cycles * 1e9 / (double)rte_get_tsc_hz();
}

/* --- pools ---------------------------------------------------------------- */

static double objects(void *arg)
{
	struct rte_mempool *pool = arg;
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());
	void *table[BULK];
	uint64_t start = rte_rdtsc();

	for (int i = 0; i < ROUNDS; i++) {
		if (rte_mempool_generic_get(pool, table, BULK, cache) < 0)
			rte_panic("the pool ran dry\n");
		rte_mempool_generic_put(pool, table, BULK, cache);
	}
	return to_ns(rte_rdtsc() - start) / ((double)ROUNDS * BULK);
}

static double mbufs(void *arg)
{
	struct rte_mempool *pool = arg;
	struct rte_mbuf *table[BULK];
	uint64_t start = rte_rdtsc();

	for (int i = 0; i < ROUNDS; i++) {
		if (rte_pktmbuf_alloc_bulk(pool, table, BULK) < 0)
			rte_panic("the pool ran dry\n");
		rte_pktmbuf_free_bulk(table, BULK);
	}
	return to_ns(rte_rdtsc() - start) / ((double)ROUNDS * BULK);
}

static void pools(void)
{
	struct rte_mempool *plain = rte_mempool_create("plain", 8191, 2048, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, NULL, NULL,
						       NULL, NULL, SOCKET_ID_ANY, 0);
	struct rte_mempool *packets = rte_pktmbuf_pool_create("packets", 8191, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, 2048 + 64,
							      SOCKET_ID_ANY);
	if (plain == NULL || packets == NULL)
		rte_panic("no memory for the pools\n");
	double ns = repeated(objects, plain);
	printf("{\"ns\":%.4f,\"fresh_ns\":%.4f}\n", ns, repeated(mbufs, packets));
}

/* --- the ring ------------------------------------------------------------- */

struct side {
	struct rte_ring *ring;
	uint32_t *waiting; /* Both sides count up, and start when it is 2. */
	uint64_t cycles;
};

static void start_together(uint32_t *waiting)
{
	__atomic_add_fetch(waiting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(waiting, __ATOMIC_SEQ_CST) != 2)
		rte_pause();
}

static int enqueue(void *arg)
{
	struct side *side = arg;
	void *burst[BULK] = {0};

	start_together(side->waiting);
	uint64_t start = rte_rdtsc();
	for (unsigned i = 0; i < BULKS; i++)
		while (rte_ring_sp_enqueue_bulk(side->ring, burst, BULK, NULL) == 0)
			rte_pause();
	side->cycles = rte_rdtsc() - start;
	return 0;
}

static int dequeue(void *arg)
{
	struct side *side = arg;
	void *burst[BULK] = {0};

	start_together(side->waiting);
	uint64_t start = rte_rdtsc();
	for (unsigned i = 0; i < BULKS; i++)
		while (rte_ring_sc_dequeue_bulk(side->ring, burst, BULK, NULL) == 0)
			rte_pause();
	side->cycles = rte_rdtsc() - start;
	return 0;
}

static double hand_off(void *arg)
{
	uint32_t waiting = 0;
	struct side near = {.ring = arg, .waiting = &waiting}, far = near;
	unsigned worker = rte_get_next_lcore(rte_lcore_id(), 1, 0);

	if (worker >= RTE_MAX_LCORE)
		rte_panic("two lcores are needed\n");
	rte_eal_remote_launch(dequeue, &far, worker);
	enqueue(&near);
	rte_eal_wait_lcore(worker);
	return to_ns(near.cycles + far.cycles) / (2.0 * BULKS * BULK);
}

static void rings(void)
{
	struct rte_ring *ring = rte_ring_create("ring", RING_SIZE, rte_socket_id(), RING_F_SP_ENQ | RING_F_SC_DEQ);

	if (ring == NULL)
		rte_panic("no memory for the ring\n");
	printf("{\"ns\":%.4f}\n", repeated(hand_off, ring));
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0 || used + 1 >= argc) {
		fprintf(stderr, "usage: %s EAL-OPTIONS -- mempool | ring\n", argv[0]);
		return 2;
	}
	const char *subject = argv[used + 1];
	if (strcmp(subject, "mempool") == 0)
		pools();
	else if (strcmp(subject, "ring") == 0)
		rings();
	else
		rte_panic("no subject is called %s\n", subject);
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
