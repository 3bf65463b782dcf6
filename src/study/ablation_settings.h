/* ablation_settings.h - DIR/settings.txt, which ablation_folder.c writes and checks. */
#ifndef DSMOE_STUDY_ABLATION_SETTINGS_H
#define DSMOE_STUDY_ABLATION_SETTINGS_H

#include "study/ablation.h"

/* The settings as text, which the caller frees; NULL if out of memory. */
char *ablation_settings_format(const ablation *a);

/* Checks that settings, in that form, are those of the folder's settings.txt. The message names one that
 * differs, and a->is_other is set. */
dsmoe_status ablation_settings_compare(ablation *a, const char *ours, const char *theirs,
                                       dsmoe_error *error);

#endif
