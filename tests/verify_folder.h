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
    int n_gradients, n_final; /* of the checks: those named grad.… and final.… */
    double sum;               /* of all that was measured */
    /* Each with a semicolon after it. */
    char names[1024];   /* of what was checked, without the gradients and final weights */
    char failed[32768]; /* of all that was wrong */
} verify_outcome;

/* With a tolerance of 1e-5. */
verify_outcome verify_folder(const char *folder, int n_threads);

/* The same of the scratch folder, after its file at `path` has become this image, which is freed. */
verify_outcome verify_image(file_image *image);
/* Then exactly these names must fail ("" for none), and nothing be skipped. */
void assert_fails(file_image *image, const char *failed);

/* A file of a reference model, or with "" its folder. */
void model_path(const char *model, const char *file, char text[512]);

#endif
