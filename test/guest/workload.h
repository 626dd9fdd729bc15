/* What the parts of the workload have in common; see workload.c. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum { PAGE = 4096 };

uint64_t now_us(void);
void sleep_us(uint64_t us);

/* say prints one whole line; lines of different threads never mix. */
void __attribute__((format(printf, 1, 2))) say(const char *format, ...);

/* One unit of work: always the same number of dependent integer operations. */
uint64_t one_unit(uint64_t x);

/* run starts a thread. */
void run(void *(*body)(void *));

void read_text(const char *name, char *buf, size_t size);

/* figure is the number that follows the key in a text of the kernel's; -1 if it is not there. */
long figure(const char *text, const char *key);

/* play_from starts to play what ek.play says, with so many units of work a second for 100%; 0 if it could be read. */
int play_from(const char *text, long units);

#endif
