/*
 * play replays a pattern of CPU and memory over and over again, and says how the guest fared: whether it got the
 * work done and the memory that it wanted, in time, and what the kernel had to do for that (kill, swap).
 *
 * The pattern is MS:CPU/MIB,CPU/MIB,... : steps of MS milliseconds, each with the CPU that is wanted, in percent of what
 * the setting ek.units names, and the memory, in MiB.
 */
#define _GNU_SOURCE
#include "workload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	MAX_STEPS = 512,
	MAX_MIB = 1 << 20,
	SLICE_MS = 100,   /* memory is taken in slices of this */
	WORK_MS = 50,     /* and work is done in these */
	READ_ALL_MS = 4000, /* all memory that is held is read once in so long */
};

static struct step {
	int cpu, mib;
} steps[MAX_STEPS];
static int count, step_ms;
static long units_per_second;

/* Written by the one who does it, read by the one who tells. */
static atomic_llong done, wanted;
static atomic_int held_mib, want_mib;
static atomic_int at_step;

/* worker does the work of each step as it becomes due. What was not done when a step ends is dropped. */
static void *worker(void *arg)
{
	(void)arg;
	uint64_t x = 1;
	double due = 0;
	uint64_t last = now_us();
	for (;;) {
		uint64_t now = now_us();
		double per_us = (double)units_per_second * steps[atomic_load(&at_step)].cpu / 100 / 1e6;
		due += per_us * (double)(now - last);
		last = now;
		double most = per_us * step_ms * 1000;
		if (due > most && due > 1)
			due = most > 1 ? most : 1;
		while (due >= 1 && now_us() - now < WORK_MS * 1000) {
			x = one_unit(x);
			__asm__ volatile("" : "+r"(x));
			atomic_fetch_add(&done, 1);
			due--;
		}
		uint64_t took = now_us() - now;
		if (took < WORK_MS * 1000)
			sleep_us(WORK_MS * 1000 - took);
	}
	return NULL;
}

/* holder takes memory and gives it back, and reads what it holds, so that what was swapped out is missed. */
static void *holder(void *arg)
{
	(void)arg;
	size_t most = 0;
	for (int i = 0; i < count; i++)
		if ((size_t)steps[i].mib > most)
			most = (size_t)steps[i].mib;
	if (most == 0)
		return NULL;
	unsigned char *memory = mmap(NULL, most << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		say("ERR play: no room for %zu MiB", most);
		return NULL;
	}
	size_t held = 0, at = 0; /* MiB */
	volatile unsigned char sum = 0;
	for (uint64_t seed = 1;; seed++) {
		uint64_t begun = now_us();
		size_t want = (size_t)atomic_load(&want_mib);
		if (held > want) {
			madvise(memory + (want << 20), (held - want) << 20, MADV_DONTNEED);
			held = want;
		}
		while (held < want && now_us() - begun < SLICE_MS * 1000) {
			unsigned char *mib = memory + (held << 20);
			for (size_t i = 0; i < 1 << 20; i += PAGE) {
				uint64_t *words = (uint64_t *)(mib + i);
				for (size_t k = 0; k < PAGE / sizeof *words; k += 8)
					words[k] = (seed + i) * 0x9E3779B97F4A7C15u + k; /* does not compress */
			}
			atomic_store(&held_mib, (int)++held);
		}
		atomic_store(&held_mib, (int)held);
		for (size_t n = held * SLICE_MS / READ_ALL_MS + 1; n > 0 && held > 0; n--) {
			at = at + 1 < held ? at + 1 : 0;
			for (size_t i = 0; i < 1 << 20; i += PAGE)
				sum += memory[(at << 20) + i];
		}
		uint64_t took = now_us() - begun;
		if (took < SLICE_MS * 1000)
			sleep_us(SLICE_MS * 1000 - took);
	}
	return NULL;
}

/* teller goes from step to step and says at the end of each what became of it. */
static void *teller(void *arg)
{
	(void)arg;
	long long before = 0, owed = 0;
	unsigned long late = 0, missing = 0;
	uint64_t end = now_us();
	for (unsigned long n = 0;; n++) {
		struct step s = steps[n % (unsigned long)count];
		atomic_store(&at_step, (int)(n % (unsigned long)count));
		atomic_store(&want_mib, s.mib);
		uint64_t begun = end;
		end += (uint64_t)step_ms * 1000;
		for (uint64_t now = now_us(); now < end; now = now_us())
			sleep_us(end - now);
		/* Of a step that took longer than it should (the whole VM stood still) as much more is wanted. */
		uint64_t now = now_us();
		double per_us = (double)units_per_second * s.cpu / 100 / 1e6;
		long long asked = (long long)(per_us * (double)(now - begun));
		if (now - end > (uint64_t)step_ms * 1000)
			end = now;
		long long did = atomic_load(&done) - before;
		before += did;
		atomic_fetch_add(&wanted, asked);
		/* A VM under a cap works in bursts: what counts is what it is behind by, and that is dropped then. */
		owed += asked - did;
		if (owed < 0)
			owed = 0;
		int slow = owed * 100 > asked * 15 + 400, lacks = atomic_load(&held_mib) < s.mib;
		late += (unsigned long)slow;
		if (slow)
			owed = 0;
		missing += (unsigned long)lacks;

		char vm[8192], mem[2048];
		read_text("/proc/vmstat", vm, sizeof vm);
		read_text("/proc/meminfo", mem, sizeof mem);
		say("PLAY %lu cpu=%d did=%lld asked=%lld held=%d want=%d late=%lu missing=%lu killed=%ld swapin=%ld swapout=%ld faults=%ld balloon_in=%ld balloon_out=%ld avail_kb=%ld swapfree_kb=%ld",
		    n, s.cpu, did, asked, atomic_load(&held_mib), s.mib, late, missing, figure(vm, "oom_kill "), figure(vm, "pswpin "),
		    figure(vm, "pswpout "), figure(vm, "pgmajfault "), figure(vm, "balloon_inflate "), figure(vm, "balloon_deflate "),
		    figure(mem, "MemAvailable:"), figure(mem, "SwapFree:"));
	}
	return NULL;
}

int play_from(const char *text, long units)
{
	char *end;
	step_ms = (int)strtol(text, &end, 10);
	if (step_ms < SLICE_MS || *end != ':' || units < 0)
		return -1;
	do {
		if (count == MAX_STEPS)
			return -1;
		long cpu = strtol(end + 1, &end, 10);
		if (*end != '/' || cpu < 0 || cpu > 6400)
			return -1;
		long mib = strtol(end + 1, &end, 10);
		if (mib < 0 || mib > MAX_MIB)
			return -1;
		steps[count++] = (struct step){(int)cpu, (int)mib};
	} while (*end == ',');
	if (*end != '\0')
		return -1;
	units_per_second = units;
	run(teller);
	run(worker);
	run(holder);
	return 0;
}
