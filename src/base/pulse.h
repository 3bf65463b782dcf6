/* pulse.h - a function that whatever takes long calls now and then, as long as it makes headway: before each task of
 * threads_for, and before each block of a file that is written. It looks after bytes that are on their way to other
 * machines meanwhile, and tells those that this one is alive. */
#ifndef DSMOE_BASE_PULSE_H
#define DSMOE_BASE_PULSE_H

typedef struct pulse_call {
    void (*call)(void *context); /* NULL: nothing */
    void *context;
} pulse_call;

/* Sets that of the calling thread, and returns the one before. */
pulse_call pulse_set(pulse_call call);
/* Makes it. */
void pulse(void);

#endif
