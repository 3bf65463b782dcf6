/* verify_folder.h - runs the check of a model folder and collects what it reports. */
#ifndef DSMOE_TESTS_VERIFY_FOLDER_H
#define DSMOE_TESTS_VERIFY_FOLDER_H

#include "dsmoe.h"
#include "image.h"

typedef struct verify_outcome {
    dsmoe_status status;
    dsmoe_error error;
    bool all_ok;
    int n_checks, n_skipped;
    int n_gradients, n_final; /* how many checks are grad.… and final.… */
    double sum;               /* of all measured values */
    /* Each name is followed by a semicolon. */
    char names[1024];   /* all checks except gradients and final weights */
    char failed[32768]; /* all checks that failed */
} verify_outcome;

/* Checks a folder with a tolerance of 1e-5. */
verify_outcome verify_folder(const char *folder, int n_threads);

/* Writes this image to `path` in the scratch folder, frees it and checks the folder. */
verify_outcome verify_image(file_image *image);
/* After that exactly the names in `failed` must fail ("" for none), and none may be skipped. */
void assert_fails(file_image *image, const char *failed);

/* The path of a reference model's file, or with "" of its folder. */
void model_path(const char *model, const char *file, char text[512]);

#endif
