/* pulse.c - each thread has its own, so that what is called never runs on another one. */
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
