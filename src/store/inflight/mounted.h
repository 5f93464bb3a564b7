/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * For a process that will confine itself to a mount namespace of its own. From there it can find out neither through
 * which mounts others have reached the store, so that a killed daemon would look like a power cut, nor how the file
 * system orders its writes; and its own mounts end with it, so they must not be recorded.
 */

#define WB_MOUNTED_NOTES_MAX 24

/*
 * Notes this for the file system of the directory `dir_fd` (may be O_PATH); call it before for each directory that may
 * be opened as a store, or in which one may be created, in a process with one thread.
 */
void wb_mounted_note(int dir_fd);
