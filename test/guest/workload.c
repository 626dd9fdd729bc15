/*
 * workload is the one long-running program of the test guest. It uses CPU and
 * memory in amounts that can be set from outside and reports on the serial
 * console how far it got, so that a test sees what caps and balloons do to a
 * VM without trusting the host's own counters.
 *
 * The lines it prints and the commands it obeys are listed in README.md.
 */
#define _GNU_SOURCE
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/input.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/utsname.h>
#include <linux/fs.h>
#include <poll.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_BURNERS = 64,
	PERIOD_US = 100000, /* a duty cycle is a share of this */
	SLICE_US = 10000,   /* memory is touched in slices of this */
	MAX_INPUT_DEVICES = 8,
	BOOTS_AT = 512 << 10, /* byte of the disk where boots are counted: before the partition of disk.qcow2 */
};

/* Settings; guarded by lock, changes are signalled on changed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static int burners, started;
static int beat_ms = 1000;
static long touch_mb, touch_rate;
static unsigned touch_order; /* counts "touch" commands */

/* Read in the inner loop of a burner, so not under the lock. */
static atomic_int duty = 100;
static atomic_int burning; /* copy of burners */

/* One cache line each: burners must not slow each other down. */
static struct {
	_Alignas(128) atomic_ullong units;
} work[MAX_BURNERS];
static atomic_ullong touched, corrupt;

static int console = STDOUT_FILENO;
static pthread_mutex_t console_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void sleep_us(uint64_t us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
	nanosleep(&t, NULL);
}

void say(const char *format, ...)
{
	char line[600];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	pthread_mutex_lock(&console_lock);
	for (ssize_t done = 0, w = 1; done < n && w > 0; done += w)
		w = write(console, line + done, (size_t)(n - done));
	pthread_mutex_unlock(&console_lock);
}

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
}

/* Units per second are proportional to the CPU time a thread gets. */
uint64_t one_unit(uint64_t x)
{
	for (int i = 0; i < 25000; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		x ^= x >> 29;
	}
	return x;
}

static void *burner(void *arg)
{
	int id = (int)(intptr_t)arg;
	uint64_t x = (uint64_t)id + 1;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (id >= burners)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);

		uint64_t start = now_us();
		int share = atomic_load(&duty);
		while (id < atomic_load(&burning) && atomic_load(&duty) == share) {
			x = one_unit(x);
			__asm__ volatile("" : "+r"(x)); /* the result is needed: do not drop the loop */
			atomic_fetch_add_explicit(&work[id].units, 1, memory_order_relaxed);
			if (share == 100)
				continue;
			uint64_t used = now_us() - start;
			if (used >= (uint64_t)share * PERIOD_US / 100) {
				if (used < PERIOD_US)
					sleep_us(PERIOD_US - used);
				start = now_us();
			}
		}
	}
	return NULL;
}

/* A page holds values derived from its place and the pass that wrote it: they
 * do not compress, and a page that was lost or mixed up shows in the next pass. */
static uint64_t page_seed(uint64_t pass, size_t offset)
{
	return (pass + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)offset * 0xD1B54A32D192ED03u;
}

static void write_page(unsigned char *page, uint64_t pass, size_t offset)
{
	uint64_t *word = (uint64_t *)page;
	const size_t words = PAGE / sizeof *word;
	if (pass > 0) {
		uint64_t old = page_seed(pass - 1, offset);
		if (word[0] != old || word[words - 8] != old + words - 8)
			atomic_fetch_add(&corrupt, 1);
	}
	uint64_t seed = page_seed(pass, offset);
	for (size_t i = 0; i < words; i += 8)
		word[i] = seed + i;
	atomic_fetch_add_explicit(&touched, 1, memory_order_relaxed);
}

static void *toucher(void *arg)
{
	(void)arg;
	unsigned char *memory = NULL;
	size_t size = 0, offset = 0;
	unsigned order = 0;
	uint64_t pass = 0;
	long rate = 0;
	for (;;) {
		pthread_mutex_lock(&lock);
		/* With nothing to hold, or all of it touched once and no rate to go on at, wait. */
		while (order == touch_order && (memory == NULL || (rate == 0 && pass > 0)))
			pthread_cond_wait(&changed, &lock);
		int again = order != touch_order;
		order = touch_order;
		long mb = touch_mb;
		rate = touch_rate;
		pthread_mutex_unlock(&lock);

		if (again) {
			if (memory != NULL)
				munmap(memory, size);
			memory = NULL;
			size = (size_t)mb << 20;
			offset = 0;
			pass = 0;
			if (size == 0)
				continue;
			memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (memory == MAP_FAILED) {
				memory = NULL;
				say("ERR touch %ld: no such amount of memory", mb);
				continue;
			}
		}

		uint64_t start = now_us();
		size_t slice = rate > 0 ? ((size_t)rate << 20) / (1000000 / SLICE_US) : (size_t)4 << 20;
		for (size_t done = 0; done < slice; done += PAGE) {
			write_page(memory + offset, pass, offset);
			offset += PAGE;
			if (offset == size) {
				offset = 0;
				pass++;
				if (rate == 0)
					break;
			}
		}
		uint64_t took = now_us() - start;
		if (rate > 0 && took < SLICE_US)
			sleep_us(SLICE_US - took);
	}
	return NULL;
}

/* The ACPI power button is a key of some input device; which one is not fixed. */
static void *power_button(void *arg)
{
	(void)arg;
	struct pollfd devices[MAX_INPUT_DEVICES];
	nfds_t n = 0;
	for (int i = 0; i < MAX_INPUT_DEVICES; i++) {
		char name[32];
		snprintf(name, sizeof name, "/dev/input/event%d", i);
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			devices[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	while (n > 0 && poll(devices, n, -1) >= 0) {
		for (nfds_t i = 0; i < n; i++) {
			struct input_event e;
			if (!(devices[i].revents & POLLIN) || read(devices[i].fd, &e, sizeof e) != sizeof e)
				continue;
			if (e.type == EV_KEY && e.code == KEY_POWER && e.value == 1) {
				say("EVENKEEL-GUEST power button");
				power_off();
			}
		}
	}
	return NULL;
}

static int set_burners(long n)
{
	if (n < 0 || n > MAX_BURNERS)
		return -1;
	pthread_mutex_lock(&lock);
	for (; started < n; started++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, burner, (void *)(intptr_t)started) != 0)
			break;
		pthread_detach(thread);
	}
	int enough = started >= n;
	if (enough) {
		burners = (int)n;
		atomic_store(&burning, burners);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return enough ? 0 : -1;
}

static int set_duty(long percent)
{
	if (percent < 1 || percent > 100)
		return -1;
	atomic_store(&duty, (int)percent);
	return 0;
}

static int set_touch(long mb, long rate)
{
	if (mb < 0 || mb > 1 << 20 || rate < 0 || rate > 1 << 20)
		return -1;
	pthread_mutex_lock(&lock);
	touch_mb = mb;
	touch_rate = rate;
	touch_order++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int set_beat(long ms)
{
	if (ms < 1 || ms > 3600000)
		return -1;
	pthread_mutex_lock(&lock);
	beat_ms = (int)ms;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

void read_text(const char *name, char *buf, size_t size)
{
	buf[0] = '\0';
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = read(fd, buf, size - 1);
	buf[n > 0 ? n : 0] = '\0';
	close(fd);
}

/* count_boot counts this boot in a sector of the disk and returns how many
 * there were with it; 0 if the sector holds something that is not ours to
 * overwrite, or cannot be written. */
static unsigned long long count_boot(int fd)
{
	static const char mark[] = "EVENKEEL-GUEST boots=";
	char sector[512];
	unsigned long long n = 0;
	if (pread(fd, sector, sizeof sector, BOOTS_AT) != sizeof sector)
		return 0;
	if (memcmp(sector, mark, sizeof mark - 1) == 0) {
		sector[sizeof sector - 1] = '\0';
		n = strtoull(sector + sizeof mark - 1, NULL, 10);
	} else {
		for (size_t i = 0; i < sizeof sector; i++)
			if (sector[i] != 0)
				return 0;
	}
	memset(sector, 0, sizeof sector);
	snprintf(sector, sizeof sector, "%s%llu\n", mark, ++n);
	/* A VM may lose its power at any moment after it said so. */
	if (pwrite(fd, sector, sizeof sector, BOOTS_AT) != sizeof sector || fsync(fd) != 0) {
		say("ERR cannot write to vda: %s", strerror(errno));
		return 0;
	}
	return n;
}

static char disk_line[100]; /* "" = no disk */

static void look_at_disk(void)
{
	char label[6];
	uint64_t bytes = 0;
	if (access("/swap", F_OK) == 0) /* init has given it to the kernel */
		return;
	int fd = open("/dev/vda", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = open("/dev/vda", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* With no disk, a cloud-init seed is the first: init has reported it. */
	int seed = pread(fd, label, sizeof label, 32808) == sizeof label && strncasecmp(label, "cidata", sizeof label) == 0;
	if (!seed && ioctl(fd, BLKGETSIZE64, &bytes) == 0)
		snprintf(disk_line, sizeof disk_line, "DISK vda bytes=%llu boots=%llu", (unsigned long long)bytes, count_boot(fd));
	close(fd);
	if (disk_line[0] != '\0')
		say("%s", disk_line);
}

/* report says again what was said of network, seed and disk at boot: a console
 * shows nothing of what was said before somebody attached to it. */
static void report(void)
{
	char found[4096];
	read_text("/report", found, sizeof found);
	char *rest = found, *line;
	while ((line = strsep(&rest, "\n")) != NULL)
		if (*line != '\0')
			say("%s", line);
	if (disk_line[0] != '\0')
		say("%s", disk_line);
}

/* number reads a whole word as a decimal number: 0 if it is one. */
static int number(const char *word, long *out)
{
	char *end;
	if (word == NULL || *word == '\0')
		return -1;
	*out = strtol(word, &end, 10);
	return *end == '\0' ? 0 : -1;
}

static void obey(char *line)
{
	char whole[200];
	snprintf(whole, sizeof whole, "%s", line);
	char *rest = line;
	char *verb = strsep(&rest, " ");
	if (strcmp(verb, "echo") == 0) { /* TEXT may be anything */
		say("OK %s", whole);
		return;
	}
	char *first = rest ? strsep(&rest, " ") : NULL;
	char *second = rest ? strsep(&rest, " ") : NULL;
	long a = 0, b = 0;
	const char *why = NULL;
	if (rest != NULL)
		why = "too many words";
	else if (strcmp(verb, "burn") == 0) {
		if (first != NULL && strcmp(first, "all") == 0)
			a = sysconf(_SC_NPROCESSORS_ONLN);
		else if (number(first, &a) != 0)
			a = -1;
		if (second != NULL || set_burners(a) != 0)
			why = "burn takes all or a number of threads from 0 to 64";
	} else if (strcmp(verb, "duty") == 0) {
		if (second != NULL || number(first, &a) != 0 || set_duty(a) != 0)
			why = "duty takes a percentage from 1 to 100";
	} else if (strcmp(verb, "touch") == 0) {
		if (number(first, &a) != 0 || (second != NULL && number(second, &b) != 0) || set_touch(a, b) != 0)
			why = "touch takes a number of MiB and a rate in MiB/s";
	} else if (strcmp(verb, "beat") == 0) {
		if (second != NULL || number(first, &a) != 0 || set_beat(a) != 0)
			why = "beat takes milliseconds from 1 to 3600000";
	} else if (strcmp(verb, "report") == 0 && first == NULL) {
		report();
	} else if (strcmp(verb, "poweroff") == 0 && first == NULL) {
		say("OK poweroff");
		power_off();
	} else
		why = "no such command";
	if (why != NULL)
		say("ERR %s", why);
	else
		say("OK %s", whole);
}

static void *commands(void *arg)
{
	(void)arg;
	char line[200], c;
	size_t n = 0;
	int too_long = 0;
	for (;;) {
		ssize_t got = read(console, &c, 1);
		if (got != 1) { /* hung up: the console may come back */
			sleep_us(PERIOD_US);
			continue;
		}
		if (c != '\n' && c != '\r') {
			if (n + 1 < sizeof line)
				line[n++] = c;
			else
				too_long = 1;
			continue;
		}
		line[n] = '\0';
		if (too_long)
			say("ERR line is longer than %zu characters", sizeof line - 1);
		else if (n > 0)
			obey(line);
		n = 0;
		too_long = 0;
	}
	return NULL;
}

long figure(const char *text, const char *key)
{
	const char *at = strstr(text, key);
	return at != NULL ? atol(at + strlen(key)) : -1;
}

/* First settings come from the kernel's command line, as ek.KEY=VALUE. */
static void first_settings(void)
{
	char cmdline[4096];
	read_text("/proc/cmdline", cmdline, sizeof cmdline);
	long mb = 0, rate = 0, units = 0;
	const char *play = NULL;
	char *rest = cmdline, *word;
	while ((word = strsep(&rest, " \n")) != NULL) {
		long v = 0;
		char *value = strchr(word, '=');
		if (strncmp(word, "ek.", 3) != 0 || value == NULL)
			continue;
		*value++ = '\0';
		int numeric = number(value, &v) == 0, bad = !numeric;
		if (strcmp(word, "ek.burn") == 0) {
			if (strcmp(value, "all") == 0) {
				v = sysconf(_SC_NPROCESSORS_ONLN);
				bad = 0;
			}
			bad = bad || set_burners(v) != 0;
		} else if (strcmp(word, "ek.duty") == 0)
			bad = bad || set_duty(v) != 0;
		else if (strcmp(word, "ek.beat") == 0)
			bad = bad || set_beat(v) != 0;
		else if (strcmp(word, "ek.touch") == 0)
			mb = v;
		else if (strcmp(word, "ek.rate") == 0)
			rate = v;
		else if (strcmp(word, "ek.units") == 0)
			units = v;
		else if (strcmp(word, "ek.play") == 0) {
			play = value;
			bad = 0;
		} else
			bad = 0; /* ek.ip and the like are init's */
		if (bad)
			say("ERR %s=%s is not a setting", word, value);
	}
	if (mb != 0 && set_touch(mb, rate) != 0)
		say("ERR ek.touch=%ld ek.rate=%ld is not a setting", mb, rate);
	if (play != NULL && play_from(play, units) != 0)
		say("ERR ek.play=%s is not a setting", play);
}

static void beat(uint64_t seq)
{
	char mem[1024];
	unsigned long long units = 0;
	read_text("/proc/meminfo", mem, sizeof mem);
	for (int i = 0; i < MAX_BURNERS; i++)
		units += atomic_load(&work[i].units);
	say("BEAT %llu uptime_ms=%llu work=%llu touched=%llu burners=%d memtotal_kb=%ld memavail_kb=%ld",
	    (unsigned long long)seq, (unsigned long long)(now_us() / 1000), units,
	    (unsigned long long)atomic_load(&touched), atomic_load(&burning),
	    figure(mem, "MemTotal:"), figure(mem, "MemAvailable:"));
	unsigned long long bad = atomic_load(&corrupt);
	if (bad > 0)
		say("CORRUPT pages=%llu", bad);
}

/* A new beat interval takes effect at once, not after the old one has passed. */
static void wait_beat(uint64_t *next)
{
	pthread_mutex_lock(&lock);
	uint64_t last = *next;
	for (;;) {
		*next = last + (uint64_t)beat_ms * 1000;
		uint64_t now = now_us();
		if (now >= *next) {
			/* Late (capped, paused): go on from here instead of catching up in a burst. */
			if (now - *next > (uint64_t)beat_ms * 1000)
				*next = now;
			break;
		}
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		uint64_t left = *next - now;
		until.tv_sec += (time_t)(left / 1000000);
		until.tv_nsec += (long)(left % 1000000) * 1000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&changed, &lock, &until);
	}
	pthread_mutex_unlock(&lock);
}

static void open_console(void)
{
	int fd = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct termios t;
	if (fd < 0)
		return;
	console = fd;
	if (tcgetattr(fd, &t) != 0)
		return;
	/* No echo and no line editing: what comes back is what this program says. */
	cfmakeraw(&t);
	t.c_oflag |= OPOST | ONLCR;
	tcsetattr(fd, TCSANOW, &t);
}

void run(void *(*body)(void *))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, body, NULL) != 0)
		say("ERR cannot start a thread");
	else
		pthread_detach(thread);
}

int main(void)
{
	struct utsname u;
	open_console();
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &monotonic);

	run(toucher);
	run(power_button);
	look_at_disk();
	uname(&u);
	say("EVENKEEL-GUEST ready kernel=%s vcpus=%ld boot_ms=%llu", u.release,
	    sysconf(_SC_NPROCESSORS_ONLN), (unsigned long long)(now_us() / 1000));
	first_settings();
	run(commands);

	uint64_t next = now_us();
	for (uint64_t seq = 0;; seq++) {
		wait_beat(&next);
		beat(seq);
	}
}
