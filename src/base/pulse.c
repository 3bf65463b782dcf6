/* pulse.c - each thread has its own pulse, so that the function never runs on another thread. */
#include "base/pulse.h"

static _Thread_local pulse_call own;

pulse_call pulse_set(pulse_call call)
{
    pulse_call before = own;
    own = call;
    return before;
}

void pulse(void)
{
    if (own.call) own.call(own.context);
}
