"""What a rehearsal must find in which script, and where it must find nothing.

Each case is a script as its author would have written it, in `traps/` or `healthy/`. Its docstring
says what was expected, and what was observed when it ran to its end, unchanged and under the
settings. `benchmarks/rehearsal_table.py` runs them all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Aspect

FOLDER = Path(__file__).parent
BATCHES, SECOND, STATE = Aspect.BATCHES, Aspect.SECOND_EPOCH, Aspect.DATASET_STATE
ROWS, RESULTS, FILES, END = Aspect.ROWS, Aspect.RESULTS, Aspect.FILES, Aspect.END

WORKERS: Settings = {"dataloader_workers": 2}
ONE_WORKER: Settings = {"dataloader_workers": 1}
KEPT: Settings = {"dataloader_workers": 2, "persistent_workers": True}
OWN_KEPT: Settings = {"persistent_workers": True}
DOUBLE: Settings = {"batch_size": 2}
COMPILED: Settings = {"compile": "default"}
NHWC: Settings = {"channels_last": True}
BF16: Settings = {"bf16_autocast": True}
FUSED: Settings = {"fused_optimizer": "fused"}
ONE_THREAD: Settings = {"cpu_threads": 1}
FAR_AHEAD: Settings = {"prefetch_factor": 8}


@dataclass(frozen=True)
class Case:
    """A script, settings to rehearse it with, and what is right."""

    name: str
    settings: Settings
    """Settings of a rehearsal."""
    aspects: tuple[Aspect, ...] = ()
    """Where a problem is expected: at least one of them. Empty for a healthy script."""
    dangerous: tuple[str, ...] = ()
    """Knobs that no plan which is called `faster` may have."""
    args: tuple[str, ...] = ()
    script: str = ""
    """Name of the file or module where it is not the case's own."""
    is_module: bool = False
    only: tuple[str, ...] = ()
    """Knobs for `tune --only`, where they are not those of the settings."""
    needs: tuple[str, ...] = ()
    """Packages without which the script cannot run."""
    gains: bool = True
    """Whether the settings of a healthy script are faster everywhere; where not, they are right."""
    refusable: bool = False
    """Whether the knob may leave the script alone, so that it is right to find nothing."""

    @property
    def is_trap(self) -> bool:
        """Whether the settings spoil something."""
        return bool(self.aspects)

    @property
    def folder(self) -> Path:
        """Folder of the script."""
        return FOLDER / ("traps" if self.is_trap else "healthy")

    @property
    def target(self) -> str:
        """The script as it is given to `gpuadvisor tune`: a path in the folder, or a module."""
        return self.script or f"{self.name}.py"

    @property
    def knobs(self) -> tuple[str, ...]:
        """Knobs that a study of it tries."""
        return self.only or tuple(self.settings)

    @property
    def lacks(self) -> tuple[str, ...]:
        """Packages that it needs and that are not installed."""
        return tuple(name for name in self.needs if find_spec(name) is None)


def trap(
    name: str, settings: Settings, *aspects: Aspect, danger: str = "", script: str = ""
) -> Case:
    """Return a trap: all of its knobs are dangerous unless `danger` names the one that is."""
    return Case(name, settings, aspects, (danger,) if danger else tuple(settings), script=script)


LIVES_ON = "persistent_workers"
"""The dangerous one of two knobs, where workers that end with the epoch are right."""

TRAPS = (
    # What the data set gives depends on what it gave before.
    trap("stream_as_map", WORKERS, BATCHES, STATE, SECOND),
    trap("text_lines", WORKERS, BATCHES, STATE, SECOND),
    trap("work_queue", WORKERS, BATCHES, STATE, SECOND),
    trap("sharded_map", WORKERS, BATCHES),
    replace(trap("resumed_stream", ONE_WORKER, SECOND, STATE), refusable=True),
    replace(trap("shuffled_stream", ONE_WORKER, SECOND, STATE), refusable=True),
    # The script changes the data set between epochs.
    trap("curriculum_attribute", OWN_KEPT, SECOND, STATE),
    trap("curriculum_global", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("curriculum_class", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("curriculum_transform", OWN_KEPT, SECOND, STATE),
    trap("curriculum_environment", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("mixup_by_epoch", OWN_KEPT, SECOND, STATE),
    trap("pseudo_labels", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("replay_buffer", KEPT, SECOND, STATE, END, danger=LIVES_ON),
    trap("augment_switch", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("dataset_set_epoch", KEPT, SECOND, STATE, danger=LIVES_ON),
    # Random numbers.
    trap("numpy_generator", WORKERS, BATCHES, SECOND, STATE),
    trap("torch_generator", WORKERS, BATCHES, SECOND, STATE),
    trap("python_random_object", WORKERS, BATCHES, SECOND, STATE),
    trap("worker_seed", WORKERS, BATCHES, SECOND, STATE),
    trap("fixed_validation_noise", WORKERS, BATCHES, SECOND),
    trap("fixed_masks", WORKERS, BATCHES, SECOND),
    # What workers read or keep does not come back, or is shared though it must not be.
    trap("cache_in_memory", WORKERS, SECOND, STATE),
    trap("cache_function", WORKERS, SECOND, STATE),
    trap("warmup_collate", WORKERS, BATCHES, SECOND, STATE),
    trap("running_normalizer", WORKERS, STATE, FILES),
    trap("skipped_samples", WORKERS, STATE, END),
    trap("hard_examples", WORKERS, BATCHES, SECOND, STATE),
    trap("shared_file_offset", WORKERS, BATCHES, STATE),
    trap("zip_handle", WORKERS, BATCHES, STATE),
    trap("corrupt_sample", WORKERS, STATE, END),
    trap("read_log", WORKERS, STATE, FILES),
    trap("teacher_in_collate", WORKERS, BATCHES, SECOND, STATE),
    trap("two_loaders_one_crop", WORKERS, BATCHES, STATE),
    trap("background_reader", WORKERS, END, STATE),
    trap("spawn_short_epochs", WORKERS, SECOND),
    trap("keeps_all_batches", WORKERS, END),
    # Rows and results that depend on the batch.
    trap("drop_last_inference", {"batch_size": 4}, ROWS, FILES),
    trap("train_mode_inference", DOUBLE, RESULTS),
    trap("padded_mean", DOUBLE, RESULTS, BATCHES),
    trap("batch_statistics", DOUBLE, RESULTS, ROWS),
    trap("top_of_each_batch", DOUBLE, FILES, RESULTS, ROWS),
    trap("sorted_in_batch", DOUBLE, ROWS, RESULTS, BATCHES),
    trap("stacked_batches", DOUBLE, END, ROWS),
    trap("hard_coded_batch", DOUBLE, RESULTS, FILES, END),
    trap("stateful_recurrent", DOUBLE, RESULTS, ROWS),
    trap("running_threshold", DOUBLE, FILES, RESULTS),
    trap("mean_of_batch_metrics", DOUBLE, FILES, RESULTS),
    trap("first_batches", DOUBLE, ROWS, RESULTS),
    trap("file_per_batch", DOUBLE, FILES),
    trap("standardised_outputs", DOUBLE, RESULTS),
    trap("rank_in_batch", DOUBLE, RESULTS, FILES),
    trap("scaled_bytes", DOUBLE, RESULTS),
    trap("adaptation_at_test_time", DOUBLE, RESULTS),
    trap("padded_scores", DOUBLE, RESULTS),
    trap("unmasked_tokens", DOUBLE, RESULTS),
    trap("swapped_towers", DOUBLE, RESULTS),
    # The end.
    trap("trace_at_end", COMPILED, END),
    trap("hook_in_last_epoch", COMPILED, END, FILES),
    trap("flat_weights_at_end", NHWC, END),
    trap("adam_then_lbfgs", NHWC, END),
    trap("gradient_norm_log", NHWC, END),
    trap("features_view", NHWC, END),
    trap("raw_storage_export", NHWC, FILES, END),
    trap("folded_after_noise", NHWC, RESULTS),
    trap("average_after_noise", NHWC, RESULTS),
    trap("per_sample_gradients", NHWC, END),
    trap("activations_to_numpy", BF16, END),
    trap("float32_features", BF16, END),
    trap("sparse_later", FUSED, END),
    trap("optimizer_audit", FUSED, END),
    # Later epochs, and the whole run.
    trap("growing_pictures", COMPILED, END, SECOND),
    trap("annealed_attribute", COMPILED, SECOND),
    trap("time_budget", COMPILED, ROWS, RESULTS, END, SECOND),
    # Numbers.
    trap("flat_parameters", NHWC, RESULTS, FILES),
    trap("rollout_at_end", BF16, RESULTS, FILES),
    trap("near_duplicates", BF16, RESULTS, FILES),
    trap("counting_layer", BF16, RESULTS, FILES),
    trap("late_temperature", BF16, RESULTS, SECOND),
    trap("unscaled_timestamps", BF16, RESULTS),
    # What only a file, a name or a line shows; what happens late. Written by someone who knew the
    # code of the rehearsal and looked for its gaps.
    trap("ts_scores_csv", DOUBLE, RESULTS),
    trap("sentiment_json", DOUBLE, RESULTS),
    trap("pickle_by_time", DOUBLE, RESULTS),
    trap("logged_metrics", DOUBLE, RESULTS),
    trap("took_of_a_share", DOUBLE, RESULTS),
    trap("took_of_tenths", DOUBLE, RESULTS),
    trap("arrivals", DOUBLE, RESULTS),
    trap("visits_printed", DOUBLE, RESULTS),
    trap("project_cache", DOUBLE, RESULTS),
    trap("min_max_print", DOUBLE, RESULTS),
    trap("rank_in_name", DOUBLE, FILES, RESULTS),
    trap("hidden_folder", DOUBLE, RESULTS),
    trap("ids_and_scores", DOUBLE, RESULTS),
    trap("two_columns", DOUBLE, RESULTS),
    trap("metric_file", DOUBLE, RESULTS),
    trap("threads_bootstrap", ONE_THREAD, RESULTS),
    trap("tta_threshold", DOUBLE, RESULTS),
    trap("dropout_export", NHWC, RESULTS, FILES),
    trap("dropout_ranks_fixed", BF16, RESULTS, FILES),
    trap("sampled_far", BF16, RESULTS),
    trap("printed_words", DOUBLE, RESULTS),
    trap("psnr_db", DOUBLE, RESULTS),
    trap("heartbeat_print", DOUBLE, RESULTS),
    trap("mosaic_closed_late", OWN_KEPT, SECOND, STATE),
    trap("negatives_from_file", OWN_KEPT, SECOND, STATE),
    trap("late_pruning", NHWC, END),
    trap("late_unfreeze", FUSED, END),
    trap("rare_bad_samples", WORKERS, STATE, FILES),
    # What happens when something was reached: no rehearsal that is so short gets there. The first
    # seven stay unverified, as what matters to their settings was never lived.
    trap("competence", OWN_KEPT, SECOND, STATE),
    trap("domain_weights", WORKERS, SECOND, STATE),
    trap("hard_samples_file", WORKERS, SECOND, STATE),
    trap("sequential_test", DOUBLE, ROWS, RESULTS),
    trap("plateau_prune", NHWC, END),
    trap("harder_when_solved", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("plateau_callback", KEPT, SECOND, STATE, danger=LIVES_ON),
    trap("enough_found", DOUBLE, ROWS, RESULTS),
    trap("ensemble_shards", DOUBLE, FILES),
    trap("ensemble_archive", DOUBLE, RESULTS),
    trap("recall_near_one", DOUBLE, RESULTS),
    # Written by someone who knew the documentation and these cases, and not the code; the last two
    # after its gaps were known.
    trap("cached_projection", COMPILED, RESULTS, FILES),
    trap("lazy_gradient_penalty", COMPILED, END),
    trap("center_stalls", BF16, RESULTS, FILES),
    trap("crop_seeds_all", WORKERS, RESULTS, FILES, STATE, BATCHES),
    trap("repeat_until_known", WORKERS, BATCHES, ROWS, SECOND, RESULTS, STATE),
    trap("sample_objects", WORKERS, SECOND, STATE, FILES, RESULTS),
    trap("cache_by_identity", WORKERS, RESULTS, STATE),
    trap("nan_is_nan", WORKERS, RESULTS, STATE),
    trap("hashed_words_spawn", WORKERS, BATCHES, SECOND, STATE),
    trap("rare_attachment", WORKERS, END),
    trap("seen_often", OWN_KEPT, SECOND, STATE),
    replace(trap("floor_shards", {"dataloader_workers": 4}, BATCHES, ROWS, SECOND), refusable=True),
    trap("int8_activations", DOUBLE, ROWS, RESULTS, FILES),
    trap("rows_by_batches", DOUBLE, RESULTS),
    trap("byte_counts", DOUBLE, RESULTS),
    trap("seeded_key", NHWC, RESULTS, FILES),
    trap("mask_seeds_mixup", WORKERS, RESULTS, STATE),
    trap("hooked_center", BF16, RESULTS, FILES),
    # Written by someone who knew the cases and had looked into the code.
    trap("scratch_file", WORKERS, BATCHES, SECOND, STATE, RESULTS),
    trap("index_rewritten", WORKERS, FILES, STATE, END),
    trap("prebatched_in_place", WORKERS, SECOND, STATE, RESULTS),
    trap("scale_of_the_first", WORKERS, BATCHES, SECOND, STATE),
    trap("folder_of_reader", WORKERS, FILES, STATE),
    trap("level_in_shared_memory", FAR_AHEAD, SECOND, STATE, RESULTS),
    trap("pool_in_default_argument", WORKERS, BATCHES, SECOND, STATE),
    trap("collate_swapped_late", OWN_KEPT, SECOND, STATE),
    trap("log_of_one_minus", BF16, RESULTS, END),
    trap("years_as_labels", BF16, RESULTS, FILES),
    trap("codebook_object", BF16, RESULTS, FILES),
    trap("precise_fit", BF16, RESULTS),
    trap("longer_sums", BF16, RESULTS, SECOND),
    trap("projection_by_seed", COMPILED, RESULTS, FILES),
    trap("numpy_masks", COMPILED, RESULTS),
    trap("gradient_surgery", FUSED, RESULTS),
    trap("strided_patches", NHWC, RESULTS, FILES),
    trap("seed_per_batch", DOUBLE, RESULTS, FILES),
    trap("saliency_of_the_mean", DOUBLE, RESULTS, FILES),
    trap("streaming_dedup", DOUBLE, RESULTS, FILES),
    # Written by someone who knew the names and first lines of the cases, and not the code.
    trap("orthogonal_again", FUSED, RESULTS, END),
    trap("mask_drawn_twice", COMPILED, RESULTS, FILES),
    trap("hash_buckets", BF16, RESULTS, FILES),
    trap("tolerance_by_loss", BF16, RESULTS),
    trap("eps_of_the_type", BF16, RESULTS, FILES),
    trap("warnings_report", WORKERS, FILES, STATE),
    trap("leftover_in_buffer", OWN_KEPT, SECOND, STATE),
    trap("numbered_cache", KEPT, SECOND, STATE, FILES),
    trap("scale_on_tensor", WORKERS, BATCHES, RESULTS, FILES),
    trap("pool_for_large", WORKERS, END),
    trap("steps_by_workers", WORKERS, RESULTS),
    trap("guarded_penalty", NHWC, RESULTS, FILES, END),
    trap("peek_while_training", KEPT, ROWS, SECOND, RESULTS, danger=LIVES_ON),
    # Written by someone who knew the documentation, names and first lines of the cases.
    trap("unreadable_text", WORKERS, STATE, END),
    trap("soft_prompts", WORKERS, RESULTS, FILES, STATE),
    trap("sampler_position", WORKERS, FILES, STATE, SECOND),
    trap("checkpoint_writers", WORKERS, END),
    trap("worker_info_seed", OWN_KEPT, SECOND, STATE),
    trap("bad_batch_skipped", DOUBLE, ROWS, RESULTS, FILES),
    trap("expert_capacity", DOUBLE, RESULTS, FILES),
    trap("state_reset", FUSED, END),
    trap("checked_in_forward", COMPILED, END),
    trap("flow_round_trip", BF16, RESULTS, END),
    trap("init_function_wakes", WORKERS, SECOND, STATE, RESULTS),
    # Numbers that training does not move, and that are others by less than a tenth.
    trap("tokens_counted", WORKERS, FILES, RESULTS, STATE),
    trap("decoded_so_far", WORKERS, RESULTS, STATE),
    trap("place_in_checkpoint", FAR_AHEAD, FILES, RESULTS, STATE),
    trap("distinct_in_batch", DOUBLE, RESULTS, FILES),
)

HEALTHY = (
    # Random augmentation in workers.
    Case("worker_augmentation_torch", KEPT),
    Case("worker_augmentation_numpy", WORKERS),
    Case("worker_augmentation_python", WORKERS),
    Case("worker_seeds_right", WORKERS),
    Case("contrastive_pairs", WORKERS),
    # Files that each process opens for itself.
    Case("lazy_sqlite", KEPT),
    Case("lazy_hdf5", KEPT, needs=("h5py",)),
    Case("memory_map", KEPT),
    Case("decoded_pictures", KEPT),
    # Text, and batches of their own shape.
    Case("tokenizer", WORKERS),
    Case("padded_training", WORKERS),
    Case("shop", KEPT, script="shop.train", is_module=True),
    # Samplers and sets of sets.
    Case("sampler_set_epoch", KEPT),
    Case("weighted_sampler", WORKERS),
    Case("concatenated", KEPT),
    Case("streamed_shards", OWN_KEPT),
    Case("streamed_one_worker", ONE_WORKER, gains=False, refusable=True),
    # Loops.
    Case("train_and_validate", KEPT),
    Case("checkpoint_and_history", WORKERS),
    Case("accumulation", WORKERS),
    Case("while_steps", KEPT),
    Case("short_epochs", OWN_KEPT),
    Case("batches_by_hand", COMPILED, gains=False),
    # Models.
    Case("gan_images", WORKERS),
    Case("autoencoder", WORKERS),
    Case("recurrent", WORKERS),
    Case("convolutional", NHWC, gains=False),
    Case("trained_on_noise", NHWC, gains=False),
    Case("sampled_text", BF16, gains=False),
    Case("tensor_dataset_threads", ONE_THREAD, gains=False),
    Case("script_at_end", ONE_THREAD, gains=False),
    # Inference.
    Case("save_all_outputs", DOUBLE),
    Case("inference_with_workers", WORKERS),
    Case("multi_input_inference", DOUBLE),
    # Beside traps of the same kinds.
    Case("ts_scores_all", DOUBLE, gains=False),
    Case("random_examples", WORKERS, gains=False),
    Case("sqlite_results", DOUBLE, gains=False),
    Case("kfold", WORKERS, gains=False),
    Case("active_learning", WORKERS, gains=False),
    Case("distill_cached", WORKERS, gains=False),
    Case("disk_cache", WORKERS, gains=False),
    Case("mp_counter", WORKERS, gains=False),
    Case("two_towers", DOUBLE, gains=False),
    Case("masked_padding", DOUBLE, gains=False),
    Case("token_outputs", DOUBLE, gains=False),
    Case("single_texts", {"batch_size": 8}, gains=False),
    Case("sampler_counter", WORKERS, gains=False),
    Case("plateau_ema", WORKERS, gains=False),
    Case("dropout_checkpoint", NHWC, gains=False),
    Case("accuracy_near_one", DOUBLE, gains=False),
    Case("late_unfreeze_dense", FUSED, gains=False),
    Case("metric_logger", WORKERS, gains=False),
    Case("recommender", DOUBLE, gains=False),
    Case("loader_knows_batch", DOUBLE, gains=False),
    Case("shared_cache_map", WORKERS, gains=False),
    Case("fixed_per_sample", WORKERS),
    Case("one_mask_for_all", WORKERS),
    Case("noise_and_dropout", WORKERS),
    Case("cached_positions", COMPILED, gains=False),
    Case("stashed_attention", BF16, gains=False),
    Case("shared_epoch_value", KEPT),
    Case("momentum_queue", NHWC, gains=False),
    Case("balanced_batches", WORKERS, gains=False),
    Case("saliency_of_sums", DOUBLE, gains=False),
    Case("penalised_critic", FUSED, gains=False),
    Case("resumed_from_folder", WORKERS),
    Case("confusion_over_all", DOUBLE, gains=False),
    Case("scratch_files_apart", WORKERS),
    Case("weights_by_loss", WORKERS),
    Case("eps_in_float", BF16, gains=False),
    Case("mask_given", COMPILED, gains=False),
    Case("peek_own_loader", KEPT),
    Case("scale_beside_tensor", WORKERS),
    Case("siamese_triplets", WORKERS),
    Case("policy_gradient", FUSED, gains=False),
    Case("distilled_student", BF16, gains=False),
    Case("bucketed_lengths", KEPT),
    Case("mixed_streams", FAR_AHEAD, gains=False),
    Case("sampler_saved_by_epoch", WORKERS),
    Case("state_cleared", FUSED, gains=False),
    Case("right_answers_saved", BF16, gains=False),
    Case("clipped_steps", FUSED, gains=False),
    Case("epochs_in_csv", WORKERS),
)

CASES = TRAPS + HEALTHY
