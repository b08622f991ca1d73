import tempfile

import torch
import toy
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Steps(TrainerCallback):
    def __init__(self):
        self.clock = toy.Clock()

    def on_step_end(self, *args, **kwargs):
        self.clock.step()


config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
tokens = torch.randint(0, 50, (640, 12))
data = [{"input_ids": row, "labels": int(row[0]) % 2} for row in tokens]
steps = Steps()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        max_steps=40,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    model = BertForSequenceClassification(config)
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[steps]).train()
steps.clock.report()
