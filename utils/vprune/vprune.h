/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of vprune share. */

#include "common/mount.h"
#include <glib.h>

/* The options of both kinds of forgetting. */
extern gboolean vprune_dry_run, vprune_yes, vprune_json;

/* Asks "vprune: QUESTION? [y/N]", unless it need not. Whether to go on; false after an error line or a no. */
bool vprune_confirmed(const struct wb_place *place, const char *question);

/* An error line. */
void vprune_complain(const struct wb_place *place, int error);

/* How far it is, on a terminal only. */
void vprune_show(uint32_t permille, uint64_t bytes, bool over);

/* ---- single versions (thin.c) ----------------------------------------------------------------- */

/* What was said of them, as in wayback.conf; NULL: not said. */
struct vprune_policy {
    char *keep, *thin, *versions;
    char **patterns;
    gboolean from_file; /* wayback.conf itself */
};

/* Whether anything was said. */
bool vprune_says_something(const struct vprune_policy *policy);

/* 0, or WB_EXIT_USAGE after saying why. */
int vprune_policy_check(const struct vprune_policy *policy);

/* Returns WB_EXIT_USAGE if the options have a mistake, else 0; failures are reported. */
int vprune_thin(const char *path, const struct vprune_policy *policy);
