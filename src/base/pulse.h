/* pulse.h - a function that is called regularly while long work makes progress.
 *
 * It is called before each task of threads_for, and before each part of a file that is written. With other
 * machines, it sends and receives bytes during that work, and tells them that this process is alive. */
#ifndef DSMOE_BASE_PULSE_H
#define DSMOE_BASE_PULSE_H

typedef struct pulse_call {
    void (*call)(void *context); /* NULL: nothing */
    void *context;
} pulse_call;

/* Sets the pulse of the calling thread, and returns the one before it. */
pulse_call pulse_set(pulse_call call);
/* Calls the pulse of the calling thread. */
void pulse(void);

#endif
