/* DPDK's rte_ring with many producers and one consumer, as whole loops: calls into the shim are
 * once a sample, and everything of DPDK is inlined. The ring lies in memory of its own, so the
 * rest of DPDK is not started. */
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <rte_errno.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_version.h>

#define BURST_MAX 64

const char *pt_version(void)
{
	return rte_version();
}

void *pt_ring_new(unsigned capacity)
{
	unsigned slots = 1;
	struct rte_ring *ring;
	ssize_t bytes;

	/* As RING_F_EXACT_SZ does. */
	while (slots < capacity + 1)
		slots *= 2;
	bytes = rte_ring_get_memsize(slots);
	if (bytes < 0)
		return NULL;
	ring = aligned_alloc(4096, ((size_t)bytes + 4095) & ~(size_t)4095);
	if (ring == NULL)
		return NULL;
	if (rte_ring_init(ring, "packtrain", capacity, RING_F_SC_DEQ | RING_F_EXACT_SZ) != 0) {
		free(ring);
		return NULL;
	}
	return ring;
}

void pt_ring_free(void *ring)
{
	free(ring);
}

static inline void fill(void **items, uint64_t from, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		items[i] = (void *)(uintptr_t)(from + i + 1);
}

/* At a full or an empty ring. */
static inline void wait_once(int yields)
{
	if (yields)
		sched_yield();
	else
		rte_pause();
}

/* Puts `total` numbers from `first` on into the ring, `burst` at once. */
void pt_ring_produce(void *ring, unsigned burst, uint64_t first, uint64_t total, int yields)
{
	_Alignas(64) void *items[BURST_MAX];
	uint64_t done = 0;

	while (done < total) {
		unsigned sent = 0;

		fill(items, first + done, burst);
		while (sent < burst) {
			unsigned n = rte_ring_mp_enqueue_burst(ring, items + sent, burst - sent, NULL);

			if (n == 0)
				wait_once(yields);
			sent += n;
		}
		done += burst;
	}
}

/* Takes `total` numbers out, at most `burst` at once; gives their sum. */
uint64_t pt_ring_consume(void *ring, unsigned burst, uint64_t total, int yields)
{
	_Alignas(64) void *items[BURST_MAX];
	uint64_t done = 0, sum = 0;

	while (done < total) {
		unsigned n = rte_ring_sc_dequeue_burst(ring, items, burst, NULL);

		if (n == 0)
			wait_once(yields);
		for (unsigned i = 0; i < n; i++)
			sum += (uintptr_t)items[i];
		done += n;
	}
	return sum;
}

/* Both in turn, in one thread. */
uint64_t pt_ring_same(void *ring, unsigned burst, uint64_t total)
{
	_Alignas(64) void *items[BURST_MAX];
	_Alignas(64) void *out[BURST_MAX];
	uint64_t sum = 0;

	for (uint64_t done = 0; done < total; done += burst) {
		unsigned n;

		fill(items, done, burst);
		rte_ring_mp_enqueue_burst(ring, items, burst, NULL);
		n = rte_ring_sc_dequeue_burst(ring, out, burst, NULL);
		for (unsigned i = 0; i < n; i++)
			sum += (uintptr_t)out[i];
	}
	return sum;
}
