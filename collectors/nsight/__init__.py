"""What Nsight Systems and Nsight Compute write."""
