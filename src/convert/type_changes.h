/* type_changes.h - counts what happens to matrices that are already quantised. */
#ifndef DSMOE_CONVERT_TYPE_CHANGES_H
#define DSMOE_CONVERT_TYPE_CHANGES_H

#include "dsmoe.h"

/* Counts a matrix that has the type `from` and gets the type `to`. */
void type_changes_add(dsmoe_type_changes *changes, dsmoe_dtype from, dsmoe_dtype to);

#endif
